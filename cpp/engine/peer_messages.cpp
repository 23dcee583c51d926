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
  wait_for_copies(deadline({}));
  const auto pinned = from.pinned();
  const std::uint64_t nbytes = from.layout().nbytes();
  VerbsPath& path = message_path();
  path.stats().count(IBV_WR_SEND, nbytes);
  if (nbytes > path.eager_limit()) return send_offer(from, tag, path);
  auto transfer = make_host_transfer(nbytes, path);
  std::vector<std::byte> payload(nbytes);
  if (nbytes > 0) pack(from.layout(), payload);
  Job job(transfer, IBV_WR_RDMA_WRITE);
  job.then({.kind = MessageKind::eager, .tag = tag, .nbytes = nbytes}, std::move(payload));
  path.submit_message(std::move(job), deadline({}));
  return transfer;
}

Peer::Transferring Peer::make_host_transfer(std::uint64_t nbytes, const VerbsPath& path) const {
  return std::make_shared<Transfer>(poller_, nbytes,
                                    routes_.over(Routes::Kind::host, RailMask{1} << path.rail()));
}

Peer::Transferring Peer::send_offer(const Memory& from, std::uint32_t tag, VerbsPath& path) {
  auto transfer = make_host_transfer(from.layout().nbytes(), path);
  auto pinned = from.pinned();
  std::uint64_t address = from.layout().address;
  if (!from.layout().is_contiguous()) {
    // The receiver reads one range: a strided array is packed into one first.
    auto packed = std::make_shared<Buffer>(from.layout().nbytes());
    pack(from.layout(), {packed->data(), packed->nbytes()});
    address = packed->address();
    auto regions = host_.registrations->find_or_create({address, address + packed->nbytes()},
                                                       /*writable=*/false, /*shared=*/false);
    pinned = std::make_shared<const Pinned>(std::move(regions), std::move(packed));
  }
  const Message message{
      .kind = MessageKind::offer, .tag = tag, .nbytes = transfer->nbytes(), .address = address};
  const RailKeys rkeys = pinned->regions->rkeys();
  transfer->keep(std::move(pinned));
  path.offer(transfer, message, rkeys, deadline({}));
  return transfer;
}

Peer::Transferring Peer::receive(const Memory& into, std::uint32_t tag) {
  check_process();
  check_on_host(into, "recv");
  if (!into.writable()) {
    throw std::invalid_argument("cannot receive into a read-only array: register a writable one");
  }
  VerbsPath& path = message_path();
  auto transfer = make_host_transfer(into.layout().nbytes(), path);
  auto pinned = into.pinned();
  PostedReceive receive{.tag = tag, .into = into.layout(), .transfer = transfer};
  if (pinned->regions) receive.lkeys = pinned->regions->lkeys();
  transfer->keep(std::move(pinned));
  path.receive(std::move(receive));
  return transfer;
}

}  // namespace zerohop::engine
