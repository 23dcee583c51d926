#include "engine/path/gpu/gpu_captures.hpp"

#include <algorithm>
#include <mutex>
#include <utility>
#include <vector>

#include "base/error.hpp"
#include "base/report.hpp"
#include "engine/notify/board_pages.hpp"
#include "gpu/apart.hpp"
#include "gpu/device_guard.hpp"
#include "gpu/kernels.hpp"
#include "gpu/replay.hpp"

namespace zerohop::engine {
namespace {

static_assert(gpu::ReplayWords::kCounts == BoardPages::kSlots);

void capture_copies(const gpu::Kernels& kernels, std::span<const gpu::CopyPiece> ranges,
                    driver::CudaAddress gate, driver::CudaStream stream) {
  constexpr std::size_t kMost = gpu::FewRanges::kMost;
  for (std::size_t done = 0; done < ranges.size(); done += kMost) {
    gpu::FewRanges few;
    for (const auto& [from, to, nbytes] :
         ranges.subspan(done, std::min(kMost, ranges.size() - done))) {
      few.from[few.count] = from;
      few.to[few.count] = to;
      few.nbytes[few.count++] = nbytes;
    }
    kernels.replayed_copy(few, gate, stream);
  }
}

gpu::ReplayedNote note_of(const KernelNotes& notes, const BoardPages& pages,
                          const Notification& notification) {
  const std::uint32_t slot = notification.slot;
  const std::uint64_t mirror =
      notes.mirrors != 0 ? notes.mirrors + slot * sizeof(gpu::Note) : std::uint64_t{0};
  return {.mirror = mirror,
          .slot = notes.notes + slot * sizeof(gpu::Note),
          .replaced = reinterpret_cast<std::uintptr_t>(&pages.slots[slot]),
          .writer = notes.writer * gpu::kFirstTag | gpu::kCounted,
          .value = notification.value};
}

}  // namespace

GpuCaptures::Captured::~Captured() {
  if (!cut_off) words->give_back_gate(gate);
}

GpuCaptures::Lane& GpuCaptures::lane_of(const std::shared_ptr<const gpu::Device>& device,
                                        const Deadline& deadline) {
  Lane& lane = lanes_[device->ordinal()];
  if (!lane.words) lane.words = std::make_shared<gpu::ReplayWords>(device, deadline);
  return lane;
}

// All calls of a GPU put notes as one writer, which counts those of each slot.
std::shared_ptr<const KernelNotes> GpuCaptures::notes_of(
    Lane& lane, const std::shared_ptr<shm::LocalSession>& session, const MakeNotes& make_notes) {
  auto notes = lane.notes.lock();
  const bool same = lane.session.lock() == session;
  if (notes && same) return notes;
  auto fresh = std::make_shared<KernelNotes>(make_notes());
  if (same) {
    fresh->writer = lane.writer;
  } else {
    lane.writer = fresh->writer;
  }
  lane.session = session;
  lane.notes = fresh;
  return fresh;
}

std::shared_ptr<const gpu::CapturePoint> GpuCaptures::add(Call call, const MakeNotes& make_notes,
                                                          const Deadline& deadline) {
  const std::lock_guard setup(setup_);
  auto kernels = gpu::Kernels::load(call.device);
  Lane& lane = lane_of(call.device, deadline);
  auto captured = std::make_shared<Captured>(lane.words, kernels);
  if (call.notify) captured->notes = notes_of(lane, call.session, make_notes);
  captured->kept = std::move(call.kept);
  const auto notes = captured->notes;
  {
    const std::lock_guard lock(mutex_);
    std::erase_if(all_, [](const auto& each) { return each.expired(); });
    all_.push_back(captured);
  }
  const driver::CudaAddress gate = captured->words->gate(captured->gate);
  const gpu::DeviceGuard guard(*call.device);
  gpu::keep_with_graph(call.device, call.stream, std::move(captured));  // whatever comes next
  capture_copies(*kernels, call.ranges, gate, call.stream);
  if (notes) {
    const auto& pages = *reinterpret_cast<const BoardPages*>(call.session->board());
    gpu::ReplayedNote note = note_of(*notes, pages, *call.notify);
    note.gate = gate;
    note.count = lane.words->count(call.notify->slot);
    note.placed = lane.words->placed(call.notify->slot);
    kernels->replayed_note(note, call.stream);
  }
  return std::make_shared<const gpu::CapturePoint>(call.device, call.stream);
}

void GpuCaptures::sweep() noexcept {
  const auto is_closed = [](const Captured& captured) {
    return std::ranges::any_of(captured.kept.mappings, [](const GpuReach::Held& held) {
      return held.hold && !held.hold->stands(*held.part.mapping);
    });
  };
  cut_off(is_closed, "has closed memory that CUDA graphs of this process read or write");
}

void GpuCaptures::end() noexcept {
  cut_off([](const Captured&) { return true; },
          "is no longer connected, and CUDA graphs of this process contain calls with it");
}

// A replay may be running, and the GPU be busy for long: another thread waits for it, and then lets
// the Peer have its memory.
template <typename IsOver>
void GpuCaptures::cut_off(IsOver is_over, const char* cause) noexcept try {
  constexpr Deadline::Seconds kPatience{5.0};
  struct Over {
    std::shared_ptr<gpu::ReplayWords> words;
    std::vector<std::uint32_t> gates{};
    std::vector<GpuCopies::Kept> kept{};
    std::vector<std::shared_ptr<const KernelNotes>> notes{};
  };
  std::map<int, std::shared_ptr<Over>> all;  // by ordinal
  std::vector<CapturedPtr> seen;  // perhaps the last references: dropped without the lock
  {
    const std::lock_guard lock(mutex_);
    for (const auto& each : all_) {
      const CapturedPtr& captured = seen.emplace_back(each.lock());
      if (!captured || captured->cut_off || !is_over(*captured)) continue;
      auto& over = all[captured->words->device()->ordinal()];
      if (!over) over = std::make_shared<Over>(Over{captured->words});
      over->gates.push_back(captured->gate);
      over->kept.push_back(std::move(captured->kept));
      over->notes.push_back(std::move(captured->notes));
      captured->cut_off = true;
    }
  }
  if (all.empty()) return;
  report({"peer '", peer_, "' ", cause, ": from now on replays leave these calls out"});
  for (auto& [ordinal, over] : all) {
    gpu::run_apart(ordinal, [over = std::move(over)]() mutable {
      if (!over->words->close_gates(over->gates, Deadline::after(kPatience))) {
        return gpu::keep_for_good(std::move(over));  // replays may still use it
      }
      const auto device = over->words->device();
      gpu::run_when_idle(device, [over = std::move(over)]() mutable { over.reset(); });
    });
  }
} catch (const std::bad_alloc&) {
  report("out of memory: memory of a peer stays mapped for CUDA graphs");
}

}  // namespace zerohop::engine
