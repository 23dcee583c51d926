#include "engine/path/gpu/gpu_captures.hpp"

#include <algorithm>
#include <exception>
#include <mutex>
#include <new>
#include <string_view>

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
  notes = std::make_shared<const KernelNotes>(make_notes(same ? lane.writer : 0));
  lane.writer = notes->writer;
  lane.session = session;
  lane.notes = notes;
  return notes;
}

std::shared_ptr<const gpu::CapturePoint> GpuCaptures::add(Call call, const MakeNotes& make_notes,
                                                          const Deadline& deadline) {
  const std::lock_guard setup(setup_);
  auto kernels = gpu::Kernels::load(call.device);
  Lane& lane = lane_of(call.device, deadline);
  auto captured = std::make_shared<CapturedCall>(lane.words, kernels);
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
  const auto is_closed = [](const CapturedCall& call) {
    return std::ranges::any_of(call.kept.mappings, [](const GpuReach::Held& held) {
      return held.hold && !held.hold->stands(*held.part.mapping);
    });
  };
  leave_out(is_closed, "has closed memory that CUDA graphs of this process read or write");
}

void GpuCaptures::end() noexcept {
  leave_out([](const CapturedCall&) { return true; },
            "is no longer connected, and CUDA graphs of this process contain calls with it");
}

// Until its gate is closed, each call keeps what it uses, whatever fails here.
template <typename IsOver>
void GpuCaptures::leave_out(IsOver is_over, const char* cause) noexcept try {
  std::map<int, Calls> over;  // by ordinal
  std::vector<std::pair<int, std::function<void()>>> works;
  Calls seen;  // perhaps the last references: dropped without the lock
  {
    const std::lock_guard lock(mutex_);
    for (const auto& each : all_) {
      const auto& call = seen.emplace_back(each.lock());
      if (!call || call->left_out || !is_over(*call)) continue;
      over[call->words->device()->ordinal()].push_back(call);
    }
    for (const auto& [ordinal, calls] : over) {
      works.emplace_back(ordinal, [peer = peer_, calls] { close(peer, calls); });
    }
    for (const auto& [ordinal, calls] : over) {  // only now that nothing fails any more
      for (const auto& call : calls) call->left_out = true;
    }
  }
  if (works.empty()) return;
  report({"peer '", peer_, "' ", cause, ": from now on replays leave these calls out"});
  for (auto& [ordinal, work] : works) gpu::run_apart(ordinal, std::move(work));
} catch (const std::bad_alloc&) {
  report("out of memory: memory of a peer stays mapped for CUDA graphs");
}

// On a thread of its own. A replay may be running, and the GPU be busy for long: lets the Peer have
// its memory after that.
void GpuCaptures::close(const std::string& peer, const Calls& of_one_gpu) noexcept {
  constexpr Deadline::Seconds kPatience{5.0};
  const auto& words = of_one_gpu.front()->words;
  const auto fail = [&peer](std::string_view why) {
    report({"memory of peer '", peer, "' stays mapped for CUDA graphs, because ", why,
            ": drop the graphs that contain calls with it"});
  };
  try {
    std::vector<std::uint32_t> gates;
    for (const auto& call : of_one_gpu) gates.push_back(call->gate);
    if (!words->close_gates(gates, Deadline::after(kPatience))) {
      return fail("kernels keep the GPU busy");
    }
    gpu::run_when_idle(words->device(), [of_one_gpu] {
      for (const auto& call : of_one_gpu) {
        call->kept = {};
        call->notes = nullptr;
      }
    });
  } catch (const std::exception& error) {
    fail(error.what());
  }
}

}  // namespace zerohop::engine
