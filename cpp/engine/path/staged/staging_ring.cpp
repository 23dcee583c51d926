#include "engine/path/staged/staging_ring.hpp"

#include <bit>
#include <cstring>
#include <mutex>
#include <utility>

#include "base/locks.hpp"

namespace zerohop::engine {

StagingRing::StagingRing(std::shared_ptr<const gpu::Device> device,
                         HostRegistrations& registrations, std::size_t chunk)
    : chunk_(chunk),
      pages_(device ? gpu_.emplace(std::move(device), kSlots, chunk).pages()
                    : host_.emplace(kSlots * chunk).data()) {
  const auto begin = reinterpret_cast<std::uint64_t>(pages_);
  regions_ = registrations.find_or_create({begin, begin + kSlots * chunk}, /*writable=*/true,
                                          /*shared=*/false);
}

// Leaks memory that the GPU may still write.
StagingRing::~StagingRing() {
  static auto& left_behind = *new std::vector<Held>();  // outlives every thread
  static Mutex<Rank::staging_rings> mutex;
  if (stuck() == 0) return;
  const std::lock_guard lock(mutex);
  for (Parked& parked : parked_) left_behind.push_back(std::move(parked.held));
}

int StagingRing::stuck() noexcept {
  int last = 0;
  std::erase_if(parked_, [&](const Parked& parked) {
    const int status = query(parked.slot);
    if (status != 0) last = status;
    if (status == 0) give_back(parked.slot);
    return status == 0;
  });
  return last;
}

std::optional<unsigned> StagingRing::take() noexcept {
  const auto i = static_cast<unsigned>(std::countr_one(used_));
  if (i >= kSlots) return std::nullopt;
  used_ |= 1u << i;
  return i;
}

int StagingRing::start(unsigned i, Direction direction, std::span<const Copy> copies) noexcept {
  if (gpu_) return gpu_->start(i, direction, copies);
  for (const Copy& copy : copies) {
    void* const memory = reinterpret_cast<void*>(copy.device);
    if (direction == Direction::to_host) {
      std::memcpy(copy.host, memory, copy.nbytes);
    } else {
      std::memcpy(memory, copy.host, copy.nbytes);
    }
  }
  return 0;
}

}  // namespace zerohop::engine
