#include "gda/device_queue.hpp"

#include <cstddef>
#include <cstring>
#include <random>
#include <utility>
#include <vector>

#include "base/error.hpp"

namespace zerohop::gda {
namespace {

// In GPU memory: words that threads change, on cache lines of their own. With a ring, the claims of
// its blocks follow.
struct Shared {
  alignas(128) std::uint32_t count = 0;  // every notification changes it
  alignas(128) device::RingState state{};
  alignas(128) device::Queue queue;
  alignas(128) device::RingWay ring{};
};

OpenedWay open(const QueueArrays& arrays, const DeviceQueue::Options& options,
               const Deadline& deadline) {
  if (options.way == WantedWay::direct) return open_direct(arrays, options, deadline);
  std::string not_mapped;
  if (options.way != WantedWay::proxy) {
    try {
      return open_mapped(arrays, options.hearers, options.timeout);
    } catch (const RouteUnavailable& error) {
      if (options.way == WantedWay::mapped) throw;
      not_mapped = error.what();
    }
  }
  return open_proxy(arrays, options.timeout, not_mapped, deadline);
}

std::size_t claims_nbytes(const OpenedWay& way) {
  return way.ring ? way.ring->ring.blocks * sizeof(std::uint32_t) : 0;
}

}  // namespace

DeviceQueue::DeviceQueue(const QueueArrays& arrays, const Options& options,
                         const Deadline& deadline)
    : way_(open(arrays, options, deadline)), device_(way_.device->facts().device_name()) {
  std::vector<std::byte> bytes(sizeof(Shared) + claims_nbytes(way_));
  memory_ = std::make_unique<DeviceValue>(way_.device, bytes.size(), std::move(way_.kept));
  const std::uint64_t at = memory_->address();
  way_.queue.count = at + offsetof(Shared, count);
  if (way_.ring) {
    way_.queue.ring = at + offsetof(Shared, ring);
    way_.ring->ring.state = at + offsetof(Shared, state);
    way_.ring->claims = at + sizeof(Shared);
    way_.ring->local = way_.queue.local;
    way_.ring->remote = way_.queue.remote;
    way_.ring->notes = way_.queue.notes;
  }
  Shared shared{.queue = way_.queue, .ring = way_.ring.value_or(device::RingWay{})};
  // Numbers of writers are reused, and their tags would be, too.
  shared.count = std::random_device()() % device::kCounts;
  std::memcpy(bytes.data(), &shared, sizeof shared);
  memory_->set(bytes, deadline);
}

const char* DeviceQueue::way() const noexcept {
  if (way_.direct) return "direct";
  return way_.proxy ? "proxy" : "mapped";
}

std::string DeviceQueue::error() const {
  if (way_.proxy) return way_.proxy->error();
  const std::string failure = way_.direct ? way_.direct->failure() : "";
  return failure.empty() ? "" : "the queue pair that kernels drive is in error: " + failure;
}

std::uint64_t DeviceQueue::address() const noexcept {
  return memory_->address() + offsetof(Shared, queue);
}

}  // namespace zerohop::gda
