#include "gda/device_queue.hpp"

#include <iterator>
#include <random>
#include <utility>

#include "engine/board.hpp"

namespace zerohop::gda {
namespace {

// What lies in the GPU's memory: the count of notes on a line of its own, as every note changes it.
struct Shared {
  alignas(128) std::uint32_t count = 0;
  alignas(128) device::Queue queue;
};

device::Queue make_queue(const engine::KernelReach& reach, const engine::Memory& local,
                         const engine::RemoteMemory& remote) {
  return {.local = local.layout().address,
          .local_nbytes = local.layout().nbytes(),
          .remote = reach.remote,
          .remote_nbytes = remote.layout.nbytes(),
          .twins = reach.notes.twins,
          .notes = reach.notes.notes,
          .count = 0,
          .writer = reach.notes.writer,
          .slots = engine::Board::kSlots,
          .rights = (reach.puts ? device::kPut : 0U) | (reach.gets ? device::kGet : 0U) |
                    (reach.puts && reach.atomics ? device::kAtomics : 0U),
          .way = device::Way::mapped};
}

}  // namespace

DeviceQueue::DeviceQueue(const engine::Peer& peer, const engine::Memory& local,
                         const engine::RemoteMemory& remote, engine::Hearers hearers,
                         const std::optional<double>& timeout, const Deadline& deadline)
    : DeviceQueue(peer.reach_for_kernels(local, remote, hearers, timeout), local, remote,
                  deadline) {}

DeviceQueue::DeviceQueue(engine::KernelReach&& reach, const engine::Memory& local,
                         const engine::RemoteMemory& remote, const Deadline& deadline)
    : route_(std::move(reach.route)),
      device_(reach.device->facts().device_name()),
      queue_(make_queue(reach, local, remote)) {
  DeviceValue::Kept kept = std::move(reach.kept);
  kept.insert(kept.end(), std::make_move_iterator(reach.notes.kept.begin()),
              std::make_move_iterator(reach.notes.kept.end()));
  memory_ = std::make_unique<DeviceValue>(reach.device, sizeof(Shared), std::move(kept));
  queue_.count = memory_->address() + offsetof(Shared, count);
  // A random first one: numbers of writers come again, and so would their tags.
  const Shared shared{.count = std::random_device()(), .queue = queue_};
  memory_->set(std::as_bytes(std::span(&shared, 1)), deadline);
}

std::uint64_t DeviceQueue::address() const noexcept {
  return memory_->address() + offsetof(Shared, queue);
}

}  // namespace zerohop::gda
