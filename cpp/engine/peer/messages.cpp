#include "engine/peer/messages.hpp"

#include <cstring>
#include <stdexcept>
#include <utility>

#include "base/buffer.hpp"
#include "base/error.hpp"

namespace zerohop::engine {

TransferPtr Messages::make_transfer(const Memory& memory, bool staged,
                                    const PeerRail& peer_rail) const {
  const Routes::Kind kind = memory.on_host() ? Routes::Kind::host
                            : staged         ? Routes::Kind::staged
                                             : Routes::Kind::gpu;
  return std::make_shared<Transfer>(s_.poller, memory.layout().nbytes(),
                                    s_.devices->route(kind, RailMask{1} << peer_rail.rail()));
}

// Short messages carry their bytes, which a GPU must copy to the host first. For long ones the
// receiver reads one range in place. A strided array is packed into a range, and so is memory that
// the device cannot access.
Messages::Packing Messages::packing(const Memory& from, const PeerRail& peer_rail) const {
  const std::uint64_t seal = sealed_ ? sizeof(Seal) : 0;
  if (from.layout().nbytes() + seal <= peer_rail.eager_limit()) return Packing::eager;
  const auto registration = from.registration();
  const Regions& regions = *registration->regions;
  const bool reached = regions.staged_key() != 0 || regions.lkey(peer_rail.rail()) != 0;
  return from.layout().is_contiguous() && reached ? Packing::none : Packing::buffer;
}

Outgoing Messages::wrap(const Memory& from, std::uint64_t tag, Packing packing,
                        Transfer& transfer) const {
  auto registration = from.registration();
  const Layout& layout = from.layout();
  const std::uint64_t nbytes = layout.nbytes();
  Outgoing outgoing{
      .message = {.kind = packing == Packing::eager ? MessageKind::eager : MessageKind::offer,
                  .tag = tag,
                  .nbytes = nbytes}};
  if (packing == Packing::eager) {
    outgoing.payload = s_.sends->take(nbytes);
    outgoing.packed = outgoing.payload.payload();
  } else if (packing == Packing::buffer) {
    auto buffer = std::make_shared<Buffer>(nbytes);
    outgoing.packed = {buffer->data(), nbytes};
    outgoing.message.address = buffer->address();
    auto regions = s_.registrations->find_or_create({buffer->address(), buffer->address() + nbytes},
                                                    /*writable=*/false, /*shared=*/false);
    outgoing.rkeys = regions->rkeys();
    transfer.keep(std::make_shared<const Registration>(std::move(regions), std::move(buffer)));
  } else {
    outgoing.message.address = layout.address;
    outgoing.rkeys = registration->regions->rkeys();
    if (const std::uint64_t key = registration->regions->staged_key()) {
      outgoing.payload = s_.sends->take(0);
      outgoing.payload.append(std::as_bytes(std::span(&key, 1)));
    }
  }
  if (sealed_ && !outgoing.payload) outgoing.payload = s_.sends->take(0);
  transfer.keep(std::move(registration));
  return outgoing;
}

TransferPtr Messages::send(const Memory& from, std::uint64_t tag) {
  s_.state->check_alive();
  s_.state->check_own(from);
  const Deadline until = s_.state->deadline({});
  s_.pending->wait_for_copies(until);
  wait_for_program(from, until);
  PeerRail& peer_rail = s_.rails->message_rail();
  peer_rail.stats().count(IBV_WR_SEND, from.layout().nbytes());
  const Packing packing = this->packing(from, peer_rail);
  auto transfer = make_transfer(from, packing != Packing::none || from.staged(), peer_rail);
  Outgoing outgoing = wrap(from, tag, packing, *transfer);
  if (sealed_) outgoing.seal = seal_of(from, until);
  transfer->count(Operation::send, s_.state->name());
  StagedWork work(transfer, StagedWork::Direction::out);
  const bool copies = !outgoing.packed.empty() && !from.on_host();
  if (copies) {
    work.add(Staging::beside(from.layout(), from.registration()->device, outgoing.packed.data()));
  } else if (!outgoing.packed.empty()) {
    pack(from.layout(), outgoing.packed);
  }
  if (copies || s_.staged->pending()) {
    s_.staged->post_later(transfer, std::move(outgoing), std::move(work));
    s_.staged->wait_for_room(until);
  } else {
    post(transfer, std::move(outgoing), peer_rail);
  }
  return transfer;
}

void Messages::post(const TransferPtr& transfer, Outgoing&& outgoing, PeerRail& peer_rail) const {
  outgoing.put_seal();
  if (outgoing.offers()) {
    return peer_rail.offer(transfer, outgoing.message, outgoing.rkeys, std::move(outgoing.payload),
                           s_.state->deadline({}));
  }
  Job job(transfer, IBV_WR_RDMA_WRITE);
  job.then(outgoing.message, std::move(outgoing.payload));
  peer_rail.submit_message(std::move(job), s_.state->deadline({}));
}

TransferPtr Messages::receive(const Memory& into, std::uint64_t tag) {
  return sealed_ ? receive_sealed(into, tag) : post_receive(into, tag, nullptr);
}

TransferPtr Messages::post_receive(const Memory& into, std::uint64_t tag,
                                   std::shared_ptr<std::optional<Seal>> seal) {
  s_.state->check_process();
  s_.state->check_own(into);
  if (!into.writable()) {
    throw std::invalid_argument(
        "cannot receive into a read-only array, or one whose elements overlap: register a "
        "writable one");
  }
  PeerRail& peer_rail = s_.rails->message_rail();
  auto transfer = make_transfer(into, into.staged(), peer_rail);
  auto registration = into.registration();
  wait_for_program(into, s_.state->deadline({}));
  PostedReceive receive{.tag = tag,
                        .into = into.layout(),
                        .gpu = registration->device,
                        .transfer = transfer,
                        .seal = std::move(seal)};
  if (registration->regions) receive.lkeys = registration->regions->lkeys();
  transfer->keep(std::move(registration));
  transfer->count(Operation::recv, s_.state->name());
  peer_rail.receive(std::move(receive));
  return transfer;
}

}  // namespace zerohop::engine
