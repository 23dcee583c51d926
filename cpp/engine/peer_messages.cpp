// What a Peer moves two-sidedly: send and recv.
#include <stdexcept>
#include <utility>

#include "base/buffer.hpp"
#include "base/error.hpp"
#include "engine/peer.hpp"

namespace zerohop::engine {
namespace {

// send and recv copy through message slots, which the CPU does.
void check_on_host(const Memory& memory, const char* call) {
  if (memory.on_host()) return;
  throw RouteUnavailable(std::string(call) + " moves host memory only, not that of " +
                         memory.device() + ": use write or read, with notify");
}

}  // namespace

Peer::Transferring Peer::send(const Memory& from, std::uint32_t tag) {
  check_alive();
  check_on_host(from, "send");
  const auto pinned = from.pinned();
  const std::uint64_t nbytes = from.layout().nbytes();
  stats().bytes_out.fetch_add(nbytes, std::memory_order_relaxed);
  if (nbytes > path_->eager_limit()) return send_offer(from, tag);
  auto transfer = std::make_shared<Transfer>(path_->poller(), nbytes, host_route_);
  std::vector<std::byte> payload(nbytes);
  if (nbytes > 0) pack(from.layout(), payload);
  Job job(transfer, IBV_WR_RDMA_WRITE);
  job.then({.kind = MessageKind::eager, .tag = tag, .nbytes = nbytes}, std::move(payload));
  path_->submit(std::move(job), deadline({}));
  return transfer;
}

Peer::Transferring Peer::send_offer(const Memory& from, std::uint32_t tag) {
  auto transfer = std::make_shared<Transfer>(path_->poller(), from.layout().nbytes(), host_route_);
  auto pinned = from.pinned();
  std::uint64_t address = from.layout().address;
  if (!from.layout().is_contiguous()) {
    // The receiver reads one range: a strided array is packed into one first.
    auto packed = std::make_shared<Buffer>(from.layout().nbytes());
    pack(from.layout(), {packed->data(), packed->nbytes()});
    address = packed->address();
    auto region = host_.registrations->find_or_create({address, address + packed->nbytes()},
                                                      /*writable=*/false, /*shared=*/false);
    pinned = std::make_shared<const Pinned>(std::move(region), std::move(packed));
  }
  const Message message{.kind = MessageKind::offer,
                        .tag = tag,
                        .value = pinned->region->rkey(),
                        .nbytes = transfer->nbytes(),
                        .address = address};
  transfer->keep(std::move(pinned));
  path_->offer(transfer, message, deadline({}));
  return transfer;
}

Peer::Transferring Peer::receive(const Memory& into, std::uint32_t tag) {
  check_process();
  check_on_host(into, "recv");
  if (!into.writable()) {
    throw std::invalid_argument("cannot receive into a read-only array: register a writable one");
  }
  auto transfer = std::make_shared<Transfer>(path_->poller(), into.layout().nbytes(), host_route_);
  auto pinned = into.pinned();
  PostedReceive receive{.tag = tag, .into = into.layout(), .transfer = transfer};
  if (pinned->region) receive.lkey = pinned->region->lkey();
  transfer->keep(std::move(pinned));
  path_->receive(std::move(receive));
  return transfer;
}

}  // namespace zerohop::engine
