#include "softhca/ring_copies.hpp"

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <utility>

namespace zerohop::softhca {
namespace {

constexpr std::size_t kLast = sizeof(std::uint64_t);

std::uint64_t address_of(const std::byte* at) { return reinterpret_cast<std::uintptr_t>(at); }

}  // namespace

template <typename Copy>
bool RingCopies::with_lane(Copy&& copy) const noexcept {
  driver::CopyLane* lane = nullptr;
  if (copier_->take(lane) != 0) return false;
  const bool started = copy(*lane);
  const bool ended = lane->mark(0) == 0 && lane->wait(0) == 0;
  const bool done = started && ended;
  copier_->give_back(*lane);
  return done;
}

bool RingCopies::read(std::span<std::byte> to, const std::byte* from) const noexcept {
  for (std::size_t done = 0; done < to.size();) {
    std::size_t part = 0;
    const bool copied = with_lane([&](driver::CopyLane& lane) {
      part = std::min(to.size() - done, lane.chunk_nbytes());
      return lane.start_to_host(lane.chunk(0), address_of(from + done), part) == 0 &&
             lane.mark(0) == 0 && lane.wait(0) == 0 &&
             std::memcpy(&to[done], lane.chunk(0), part) != nullptr;
    });
    if (!copied) return false;
    done += part;
  }
  return true;
}

bool RingCopies::write(std::byte* to, std::span<const std::byte> entry) const noexcept {
  return with_lane([&](driver::CopyLane& lane) {
    const std::size_t before = entry.size() - kLast;
    std::memcpy(lane.chunk(0), entry.data(), entry.size());
    return lane.start_to_device(address_of(to), lane.chunk(0), before) == 0 &&
           lane.start_to_device(address_of(to + before), lane.chunk(0) + before, kLast) == 0;
  });
}

bool RingCopies::fill(std::byte* to, std::size_t nbytes,
                      std::span<const std::byte> entry) const noexcept {
  return with_lane([&](driver::CopyLane& lane) {
    const std::size_t whole = lane.chunk_nbytes() / entry.size() * entry.size();
    for (std::size_t at = 0; at < std::min(whole, nbytes); at += entry.size()) {
      std::memcpy(lane.chunk(0) + at, entry.data(), entry.size());
    }
    for (std::size_t done = 0; done < nbytes; done += whole) {
      const std::size_t part = std::min(whole, nbytes - done);
      if (lane.start_to_device(address_of(to + done), lane.chunk(0), part) != 0) return false;
    }
    return true;
  });
}

}  // namespace zerohop::softhca
