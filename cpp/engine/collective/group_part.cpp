#include "engine/collective/group_part.hpp"

#include <algorithm>
#include <exception>
#include <span>
#include <utility>

#include "base/crc32c.hpp"
#include "base/error.hpp"

namespace zerohop::engine::collective {
namespace {

bool overlap(std::uint64_t a, std::uint64_t nbytes_of_a, std::uint64_t b,
             std::uint64_t nbytes_of_b) noexcept {
  return a < b + nbytes_of_b && b < a + nbytes_of_a;
}

}  // namespace

bool lies_in(const gpu::GroupCall& call, const Extent& memory) noexcept {
  const auto lies = [&](std::uint64_t address, std::uint64_t nbytes) {
    return address != 0 && memory.begin <= address && address + nbytes <= memory.end;
  };
  const std::uint64_t own = call.lengths[call.rank];
  bool accessed = false;
  for (std::uint32_t rank = 0; rank < call.size; ++rank) {
    const std::uint64_t nbytes = call.lengths[rank], sent = call.sends[rank];
    if (rank == call.rank || nbytes == 0) continue;
    for (const std::uint64_t address : {sent, call.gathers[rank]}) {
      if (address != 0 && !lies(address, nbytes)) return false;
      accessed = accessed || address != 0;
    }
    // A scan in place.
    if (call.result != 0 && sent != 0 && overlap(call.result, own, sent, nbytes)) return false;
  }
  if (accessed || lies(call.sends[call.rank], own) || lies(call.result, own)) return true;
  return std::ranges::any_of(call.receives, [&](auto address) { return lies(address, own); });
}

GroupPart::GroupPart(const GroupPlace& place, Memory own)
    : place_(place),
      own_(std::move(own)),
      extent_{.begin = own_.layout().address,
              .end = own_.layout().address + own_.layout().nbytes()},
      far_(place.size) {
  begins_.at(place.rank) = extent_.begin;
  name(place.rank, own_.remote());
}

void GroupPart::meet(std::uint32_t rank, const std::shared_ptr<Peer>& peer,
                     const RemoteMemory& memory, double timeout) {
  KernelReach reach =
      peer->kernels().mapped({.local = &own_, .remote = &memory}, Hearers::cpu, timeout);
  if (!reach.puts || !reach.gets) {
    throw RouteUnavailable("the memory of another rank cannot be read and written");
  }
  far_.at(rank) = {.session = std::move(reach.session), .part = std::move(reach.part)};
  begins_.at(rank) = reach.remote;
  name(rank, memory);
}

// So that memory which another rank has made anew meanwhile is not taken for what is known here.
void GroupPart::name(std::uint32_t rank, const RemoteMemory& memory) {
  const std::array<std::uint64_t, 3> range{memory.local_key, memory.layout.address,
                                           memory.layout.nbytes()};
  names_.at(rank) = crc32c(std::as_bytes(std::span(range)), crc32c(memory.endpoint));
}

std::shared_ptr<GroupPart::Hold> GroupPart::hold(gpu::GroupCall& call) const noexcept try {
  if (!lies_in(call, extent_)) return nullptr;
  auto hold = std::make_shared<Hold>();
  hold->kept.push_back(own_.registration());
  for (std::uint32_t rank = 0; rank < place_.size; ++rank) {
    if (rank == place_.rank) continue;
    hold->kept.push_back(hold_for_kernels(far_[rank].session, far_[rank].part));
  }
  std::ranges::copy(begins_, call.parts);
  call.part = crc32c(std::as_bytes(std::span(names_).first(place_.size)));
  return hold;
} catch (const std::exception&) {  // a rank has closed its memory, or is lost
  return nullptr;
}

}  // namespace zerohop::engine::collective
