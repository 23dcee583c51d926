#include "engine/path/gpu/gpu_notifier.hpp"

#include <random>
#include <utility>

#include "base/error.hpp"

namespace zerohop::engine {
namespace {

// A tag is the writer's number above the count of what it has put into that slot.
constexpr std::uint32_t kWriters = gpu::kForCpuAlone / gpu::kFirstTag - 1;
constexpr std::uint32_t kCounts = gpu::kFirstTag;

// Counted among those whose notes wake nobody.
class Silent {
 public:
  Silent(std::shared_ptr<ipc::Visit> visit, BoardPages& pages)
      : visit_(std::move(visit)), pages_(pages) {
    pages_.kernels.fetch_add(1);
  }
  ~Silent() { pages_.kernels.fetch_sub(1); }
  Silent(const Silent&) = delete;
  Silent& operator=(const Silent&) = delete;

 private:
  const std::shared_ptr<ipc::Visit> visit_;  // keeps the pages mapped
  BoardPages& pages_;
};

std::uint32_t next_writer(BoardPages& pages) { return 1 + pages.writers.fetch_add(1) % kWriters; }

// Where `device` has the twins of all slots, and what is to be kept meanwhile. Throws what
// GpuWindows::reach() throws, and RouteUnavailable.
std::uint64_t reach_twins(const std::shared_ptr<ipc::Visit>& visit, GpuWindows& windows,
                          const std::shared_ptr<const gpu::Device>& device,
                          std::vector<std::shared_ptr<const void>>& kept,
                          const Deadline& deadline) {
  const auto& twins = reinterpret_cast<const BoardPages*>(visit->board())->twins;
  const Extent extent{twins.address, twins.address + sizeof(BoardPages::notes)};
  const auto places = windows.reach(*visit, twins.key, extent, device, deadline);
  const GpuWindows::Place& place = places.front();
  kept.push_back(hold_for_kernels(visit, {place->window, place}));
  return place->memory->at(twins.address);
}

bool settle_twins(BoardPages::Twins& twins) {
  std::uint32_t state = BoardPages::Twins::unsettled;
  twins.state.compare_exchange_strong(state, BoardPages::Twins::none);
  return state == BoardPages::Twins::there;
}

}  // namespace

void GpuNotifier::enter(const std::shared_ptr<ipc::Visit>& visit,
                        const std::shared_ptr<const gpu::Device>& device) {
  board_ = {};
  board_.visit = visit;  // once: where it fails it would fail again
  try {
    board_.pages = std::make_shared<const gpu::RegisteredPages>(
        device, visit, visit->board(), sizeof(BoardPages), "a notification board");
  } catch (const Error&) {
    return;  // then the CPU notifies, once it sees that the GPU has copied
  }
  auto& pages = *reinterpret_cast<BoardPages*>(visit->board());
  board_.writer = next_writer(pages);
  board_.first = std::random_device()();
  board_.has_twins = settle_twins(pages.twins);
}

std::uint32_t GpuNotifier::next_tag(std::uint32_t slot) {
  const std::uint32_t count = board_.first + board_.counts[slot]++;
  return board_.writer * gpu::kFirstTag + count % kCounts;
}

GpuNotifier::Place GpuNotifier::place(const std::shared_ptr<ipc::Visit>& visit, GpuWindows& windows,
                                      const std::shared_ptr<const gpu::Device>& device,
                                      std::uint32_t slot, std::uint32_t value,
                                      const std::function<Deadline()>& deadline) {
  const auto& pages = *reinterpret_cast<const BoardPages*>(visit->board());
  Place place;
  bool has_twins = false;
  {
    const std::lock_guard lock(mutex_);
    if (board_.visit.lock() != visit) enter(visit, device);
    if (!board_.pages || !device->facts().reaches_registered) return {};
    place.put.slot = reinterpret_cast<std::uintptr_t>(&pages.notes[slot]);
    place.put.note = gpu::make_note(value, next_tag(slot));
    if (pages.slots[slot].load(std::memory_order_relaxed) != 0) {
      place.put.replaced = reinterpret_cast<std::uintptr_t>(&pages.slots[slot]);
    }
    place.pages = board_.pages;
    has_twins = board_.has_twins;
  }
  if (!has_twins) return place;
  const std::uint64_t address = pages.twins.address + slot * sizeof(gpu::Note);
  try {
    const auto places = twin_of(address, pages.twins, *visit, windows, device, deadline);
    const GpuWindows::Place& twin = places.front();
    place.twin = {{twin->window, twin}, ipc::Visit::hold(visit, *twin->window)};
    // Asked behind the hold: either this sees the end, or the owner the hold.
    if (visit->refusal(twin->window.get()) != ipc::Copied::all) return {};
    place.put.twin = twin->memory->at(address);
  } catch (const Error&) {
    return {};  // the same
  }
  return place;
}

GpuWindows::Places GpuNotifier::twin_of(std::uint64_t address, const BoardPages::Twins& twins,
                                        ipc::Visit& visit, GpuWindows& windows,
                                        const std::shared_ptr<const gpu::Device>& device,
                                        const std::function<Deadline()>& deadline) {
  const Extent extent{address, address + sizeof(gpu::Note)};
  auto places = windows.known(twins.key, extent, device->ordinal());
  if (places.empty()) places = windows.reach(visit, twins.key, extent, device, deadline());
  return places;
}

KernelNotes GpuNotifier::for_kernels(const std::shared_ptr<ipc::Visit>& visit, GpuWindows& windows,
                                     const std::shared_ptr<const gpu::Device>& device,
                                     Hearers hearers, const Deadline& deadline) {
  auto& pages = *reinterpret_cast<BoardPages*>(visit->board());
  KernelNotes found;
  bool has_twins = false;
  {
    const std::lock_guard lock(mutex_);
    if (board_.visit.lock() != visit) enter(visit, device);
    if (!board_.pages || !device->facts().reaches_registered) {
      throw RouteUnavailable(device->facts().device_name() +
                             " does not reach the peer's notification board in host memory");
    }
    found.kept.push_back(board_.pages);
    has_twins = board_.has_twins;
  }
  found.writer = next_writer(pages);
  if (has_twins && hearers == Hearers::cpu) found.writer |= gpu::kForCpuAlone / gpu::kFirstTag;
  const bool kernels_hear = hearers != Hearers::cpu;
  if (kernels_hear && has_twins) {
    found.twins = reach_twins(visit, windows, device, found.kept, deadline);
  } else if (hearers == Hearers::kernels) {
    throw RouteUnavailable(
        "the peer keeps no notifications in the memory of its GPU: have it register an array of "
        "that GPU before others write there, or let the CPU hear, too");
  }
  // Without twins its kernels look at the board.
  if (hearers == Hearers::kernels) return found;
  found.notes = reinterpret_cast<std::uintptr_t>(&pages.notes[0]);
  found.kept.push_back(std::make_shared<const Silent>(visit, pages));
  return found;
}

void GpuNotifier::leave() noexcept {
  Board last;
  const std::lock_guard lock(mutex_);
  last = std::move(board_);
  board_ = {};
}

}  // namespace zerohop::engine
