#include "engine/path/gpu/gpu_notifier.hpp"

#include <random>
#include <utility>

#include "base/error.hpp"
#include "gpu/replay.hpp"

namespace zerohop::engine {
namespace {

// A tag is the writer's number above the count of its puts into that slot.
constexpr std::uint32_t kWriters = gpu::kCounted / gpu::kFirstTag - 1;
constexpr std::uint32_t kCounts = gpu::kFirstTag;

// Counts itself among the writers whose notes wake no thread.
class Silent {
 public:
  Silent(std::shared_ptr<shm::LocalSession> session, BoardPages& pages)
      : session_(std::move(session)), pages_(pages) {
    pages_.kernels.fetch_add(1);
  }
  ~Silent() { pages_.kernels.fetch_sub(1); }
  Silent(const Silent&) = delete;
  Silent& operator=(const Silent&) = delete;

 private:
  const std::shared_ptr<shm::LocalSession> session_;  // keeps the pages mapped
  BoardPages& pages_;
};

std::uint32_t next_writer(BoardPages& pages) { return 1 + pages.writers.fetch_add(1) % kWriters; }

// The address of the mirrors of all slots for `device`; adds to `kept` what must stay alive. Throws
// as GpuMappings::reach() does, and RouteUnavailable.
std::uint64_t reach_mirrors(const std::shared_ptr<shm::LocalSession>& session,
                            GpuMappings& mappings, const std::shared_ptr<const gpu::Device>& device,
                            std::vector<std::shared_ptr<const void>>& kept,
                            const Deadline& deadline) {
  const auto& mirrors = reinterpret_cast<const BoardPages*>(session->board())->mirrors;
  const Extent extent{mirrors.address, mirrors.address + sizeof(BoardPages::notes)};
  const auto places = mappings.reach(*session, mirrors.key, extent, device, deadline);
  const GpuMappings::Place& place = places.front();
  kept.push_back(hold_for_kernels(session, {place->mapping, place}));
  return place->memory->at(mirrors.address);
}

bool settle_mirrors(BoardPages::Mirrors& mirrors) {
  std::uint32_t state = BoardPages::Mirrors::unsettled;
  mirrors.state.compare_exchange_strong(state, BoardPages::Mirrors::none);
  return state == BoardPages::Mirrors::there;
}

}  // namespace

void GpuNotifier::enter(const std::shared_ptr<shm::LocalSession>& session,
                        const std::shared_ptr<const gpu::Device>& device) {
  board_ = {};
  board_.session = session;  // only once: another try would fail again
  auto& pages = *reinterpret_cast<BoardPages*>(session->board());
  const auto begin = reinterpret_cast<std::uintptr_t>(&pages);
  const auto whole = std::make_shared<gpu::HostPages>(Extent{begin, begin + sizeof pages}, session,
                                                      gpu::PageUse::write);
  try {
    whole->reach_all(device, Deadline::after(Deadline::Seconds{0}));  // nobody else locks them
  } catch (const Error&) {
    return;  // the CPU notifies once it sees that the GPU has copied
  }
  board_.pages = whole;
  board_.writer = next_writer(pages);
  board_.first = std::random_device()();
  board_.has_mirrors = settle_mirrors(pages.mirrors);
}

std::uint32_t GpuNotifier::next_tag(std::uint32_t slot) {
  const std::uint32_t count = board_.first + board_.counts[slot]++;
  return board_.writer * gpu::kFirstTag + count % kCounts;
}

GpuNotifier::Place GpuNotifier::place(const std::shared_ptr<shm::LocalSession>& session,
                                      GpuMappings& mappings,
                                      const std::shared_ptr<const gpu::Device>& device,
                                      std::uint32_t slot, std::uint32_t value,
                                      const std::function<Deadline()>& deadline) {
  const auto& pages = *reinterpret_cast<const BoardPages*>(session->board());
  Place place;
  bool has_mirrors = false;
  {
    const std::lock_guard lock(mutex_);
    if (board_.session.lock() != session) enter(session, device);
    if (!board_.pages || !device->facts().reaches_registered) return {};
    place.put.slot = reinterpret_cast<std::uintptr_t>(&pages.notes[slot]);
    place.put.note = gpu::make_note(value, next_tag(slot));
    if (pages.slots[slot].load(std::memory_order_relaxed) != 0) {
      place.put.replaced = reinterpret_cast<std::uintptr_t>(&pages.slots[slot]);
    }
    place.pages = board_.pages;
    has_mirrors = board_.has_mirrors;
  }
  if (!has_mirrors) return place;
  const std::uint64_t address = pages.mirrors.address + slot * sizeof(gpu::Note);
  try {
    const auto places = mirror_of(address, pages.mirrors, *session, mappings, device, deadline);
    const GpuMappings::Place& mirror = places.front();
    place.mirror = {{mirror->mapping, mirror}, shm::LocalSession::hold(session, *mirror->mapping)};
    // Checked after the hold: either this sees the end, or the owner sees the hold.
    if (session->refusal(mirror->mapping.get()) != shm::Copied::all) return {};
    place.put.mirror = mirror->memory->at(address);
  } catch (const Error&) {
    return {};  // likewise
  }
  return place;
}

GpuMappings::Places GpuNotifier::mirror_of(std::uint64_t address,
                                           const BoardPages::Mirrors& mirrors,
                                           shm::LocalSession& session, GpuMappings& mappings,
                                           const std::shared_ptr<const gpu::Device>& device,
                                           const std::function<Deadline()>& deadline) {
  const Extent extent{address, address + sizeof(gpu::Note)};
  auto places = mappings.known(mirrors.key, extent, device->ordinal());
  if (places.empty()) places = mappings.reach(session, mirrors.key, extent, device, deadline());
  return places;
}

KernelNotes GpuNotifier::for_kernels(const std::shared_ptr<shm::LocalSession>& session,
                                     GpuMappings& mappings, const KernelWriter& writer,
                                     const Deadline& deadline) {
  const auto& [device, hearers, number] = writer;
  auto& pages = *reinterpret_cast<BoardPages*>(session->board());
  KernelNotes found;
  bool has_mirrors = false;
  {
    const std::lock_guard lock(mutex_);
    if (board_.session.lock() != session) enter(session, device);
    if (!board_.pages || !device->facts().reaches_registered) {
      throw RouteUnavailable(device->facts().device_name() +
                             " does not reach the peer's notification board in host memory");
    }
    found.kept.push_back(board_.pages);
    has_mirrors = board_.has_mirrors;
  }
  found.writer = number != 0 ? number : next_writer(pages);
  if (has_mirrors && hearers == Hearers::cpu) found.writer |= gpu::kForCpuAlone / gpu::kFirstTag;
  const bool kernels_hear = hearers != Hearers::cpu;
  if (kernels_hear && has_mirrors) {
    found.mirrors = reach_mirrors(session, mappings, device, found.kept, deadline);
  } else if (hearers == Hearers::kernels) {
    throw RouteUnavailable(
        "the peer keeps no notifications in the memory of its GPU: let it register an array of "
        "that GPU before others write there, or notify the CPU as well");
  }
  // Without mirrors the peer's kernels read the board.
  if (hearers == Hearers::kernels) return found;
  found.notes = reinterpret_cast<std::uintptr_t>(&pages.notes[0]);
  found.kept.push_back(std::make_shared<const Silent>(session, pages));
  return found;
}

void GpuNotifier::end() noexcept {
  Board last;
  const std::lock_guard lock(mutex_);
  last = std::move(board_);
  board_ = {};
}

}  // namespace zerohop::engine
