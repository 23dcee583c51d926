#include "driver/ring_copies.hpp"

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <utility>

namespace zerohop::driver {
namespace {

constexpr std::size_t kLast = sizeof(std::uint64_t);

std::uint64_t address_of(const std::byte* at) { return reinterpret_cast<std::uintptr_t>(at); }

}  // namespace

template <typename Copy>
int RingCopies::with_lane(Copy&& copy) const noexcept {
  CopyLane* lane = nullptr;
  if (const int error = copier_->take(lane); error != 0) return error;
  const auto wait = [&] {
    const int marked = lane->mark(0);
    return marked != 0 ? marked : lane->wait(0);
  };
  const int error = copy(*lane, wait);
  const int ended = wait();  // also behind an error: some may run
  copier_->give_back(*lane);
  return error != 0 ? error : ended;
}

int RingCopies::read(std::span<std::byte> to, const std::byte* from) const noexcept {
  return with_lane([&](CopyLane& lane, const auto& wait) {
    int error = 0;
    for (std::size_t done = 0; done < to.size() && error == 0; done += lane.chunk_nbytes()) {
      const std::size_t part = std::min(to.size() - done, lane.chunk_nbytes());
      error = lane.start_to_host(lane.chunk(0), address_of(from + done), part);
      if (error == 0) error = wait();
      if (error == 0) std::memcpy(&to[done], lane.chunk(0), part);
    }
    return error;
  });
}

int RingCopies::write(std::byte* to, std::span<const std::byte> entry) const noexcept {
  return with_lane([&](CopyLane& lane, const auto&) {
    const std::size_t before = entry.size() - kLast;
    std::memcpy(lane.chunk(0), entry.data(), entry.size());
    const int error = lane.start_to_device(address_of(to), lane.chunk(0), before);
    if (error != 0) return error;
    return lane.start_to_device(address_of(to + before), lane.chunk(0) + before, kLast);
  });
}

int RingCopies::fill(std::byte* to, std::size_t nbytes,
                     std::span<const std::byte> entry) const noexcept {
  return with_lane([&](CopyLane& lane, const auto&) {
    const std::size_t whole = lane.chunk_nbytes() / entry.size() * entry.size();
    for (std::size_t at = 0; at < std::min(whole, nbytes); at += entry.size()) {
      std::memcpy(lane.chunk(0) + at, entry.data(), entry.size());
    }
    int error = 0;
    for (std::size_t done = 0; done < nbytes && error == 0; done += whole) {
      error = lane.start_to_device(address_of(to + done), lane.chunk(0),
                                   std::min(whole, nbytes - done));
    }
    return error;
  });
}

}  // namespace zerohop::driver
