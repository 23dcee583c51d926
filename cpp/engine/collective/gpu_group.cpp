#include "engine/collective/gpu_group.hpp"

#include <unistd.h>

#include <algorithm>
#include <iterator>
#include <new>
#include <stdexcept>
#include <utility>

#include "base/error.hpp"
#include "base/fork.hpp"
#include "base/report.hpp"
#include "base/seconds.hpp"
#include "gpu/device_guard.hpp"
#include "gpu/stream_wait.hpp"

namespace zerohop::engine::collective {
namespace {

using gpu::GroupEnd;

// Whether the call with `number` is among those up to `latest`; both wrap around.
bool is_among(std::uint32_t latest, std::uint32_t number) {
  return static_cast<std::int32_t>(latest - number) >= 0;
}

}  // namespace

GpuGroup::GpuGroup(Host host, const GroupPlace& place, Memory arena, std::string name,
                   const Deadline& deadline)
    : generation_(fork_generation()),
      host_(std::move(host)),
      place_(place),
      name_(std::move(name)),
      arena_(std::move(arena)),
      registration_(arena_.registration()),
      members_(place.size) {
  if (place.size > gpu::kGroupRanks || arena_.on_host() ||
      arena_.layout().nbytes() < nbytes_for(place.size)) {
    throw std::invalid_argument("a group of GPUs has at most " + std::to_string(gpu::kGroupRanks) +
                                " ranks, and its arena is " +
                                std::to_string(nbytes_for(place.size)) + " bytes of GPU memory");
  }
  group_ = std::make_shared<gpu::Group>(registration_->device);
  route_ = std::make_shared<const Route>(
      Route{.kind = "p2p",
            .device = device().facts().device_name(),
            .reason = "kernels of all ranks store into each other's memory",
            .settings = {}});
  const std::uint64_t begin = arena_.layout().address;
  const gpu::DeviceGuard guard(device());
  gpu::zero_memory(device(), {.begin = begin, .end = begin + nbytes_for(place.size)},
                   "the arena of a group of GPUs", deadline);
  addresses_.arenas[place.rank] = begin;
}

GpuGroup::~GpuGroup() {
  if (generation_ != fork_generation()) {  // it belongs to the parent, as do its mappings
    new auto(std::move(members_));
    new auto(std::move(entries_));
    new auto(std::move(waits_));
    return;
  }
  for (Member& member : members_) {
    if (member.peer) member.peer->forget(member.loss);
  }
  group_->cancel();
  const std::uint32_t well = group_->ended_well();
  for (Entry& entry : entries_) {
    if (!is_among(well, entry.number)) {
      entry.transfer->fail(
          {.message = text_of_code(entry.code) + ": the World was closed before its kernel ended"});
    }
    entry.transfer->drop();
  }
  auto kept = take_members();
  for (Entry& entry : entries_) kept.push_back(std::move(entry.hold));
  kept.push_back(registration_);
  kept.push_back(group_);
  gpu::run_when_idle(group_->device(), [kept = std::move(kept)]() mutable { kept.clear(); });
}

GpuGroup::Kept GpuGroup::take_members() noexcept {
  Kept taken;
  const std::lock_guard lock(mutex_);
  for (Member& member : members_) {
    taken.insert(taken.end(), std::make_move_iterator(member.kept.begin()),
                 std::make_move_iterator(member.kept.end()));
    member.kept.clear();
  }
  for (const auto& captured : captured_) {
    const auto hold = captured.lock();
    if (!hold) continue;
    std::ranges::move(hold->kept, std::back_inserter(taken));
    hold->kept.clear();
  }
  return taken;
}

// A rank is lost, and may be waiting to close its memory: lets go of it, once no kernel, not even
// of a graph, will touch it.
void GpuGroup::let_go() noexcept {
  constexpr Deadline::Seconds kPatience{5.0};
  Kept kept = take_members();
  try {
    if (group_->close(arena_.layout().address, Deadline::after(kPatience))) {
      gpu::run_when_idle(group_->device(), [kept = std::move(kept)]() mutable { kept.clear(); });
      return;
    }
    report({name_, ": the memory of other ranks stays mapped: kernels keep the GPU busy"});
  } catch (const Error& error) {
    report({name_, ": the memory of other ranks stays mapped: ", error.what()});
  }
  for (auto& each : kept) gpu::keep_for_good(std::move(each));
}

void GpuGroup::meet(std::uint32_t rank, const std::shared_ptr<Peer>& peer,
                    const RemoteMemory& arena, double timeout) {
  if (peer->wants_checks()) throw RouteUnavailable("integrity=1: kernels compare no checksums");
  KernelReach reach =
      peer->kernels().mapped({.local = &arena_, .remote = &arena}, Hearers::cpu, timeout);
  if (!reach.puts) throw RouteUnavailable("the memory of another rank's group cannot be written");
  const std::lock_guard lock(mutex_);
  addresses_.arenas[rank] = reach.remote;
  // A driver call that frees memory waits for the kernel of one rank, and the launch of the other
  // would wait for that call.
  if (peer->identity().pid == static_cast<std::uint32_t>(::getpid())) {
    waits_ = std::make_unique<const gpu::KernelsWait>();
  }
  Member& member = members_.at(rank);
  member.peer = peer;
  member.kept = std::move(reach.kept);
  member.loss = peer->on_lost([weak = weak_from_this(), rank] {
    if (const auto group = weak.lock()) group->on_lost(rank);
  });
}

void GpuGroup::on_lost(std::uint32_t rank) noexcept {
  std::uint32_t none = kNone;
  lost_.compare_exchange_strong(none, rank);
  group_->cancel();
  gpu::run_apart(device().ordinal(), [weak = weak_from_this()] {
    if (const auto group = weak.lock()) group->let_go();
  });
}

void GpuGroup::end(const std::string& reason) noexcept {
  group_->cancel();  // first: another thread may hold the lock while a stream is full
  try {
    const std::lock_guard lock(mutex_);
    if (why_ended_.empty()) why_ended_ = reason;
  } catch (const std::bad_alloc&) {
    return;  // it ends without a reason
  }
}

std::string GpuGroup::loss() const {
  const std::uint32_t rank = lost_.load();
  if (rank == kNone) return {};
  return "rank " + std::to_string(rank) + " is lost: " + members_[rank].peer->why_lost();
}

// Throws what ended the group. Requires the lock.
void GpuGroup::check() const {
  if (const std::string lost = loss(); !lost.empty()) throw PeerLost(lost);
  if (group_->failure().what != GroupEnd::fine) {
    throw Error("the GPUs' collectives have ended: " + failure_of("a call", 0).message);
  }
  if (!why_ended_.empty()) throw Error(why_ended_);
}

std::shared_ptr<Transfer> GpuGroup::call(const GroupArrays& arrays,
                                         std::optional<driver::CudaStream> stream, double seconds,
                                         const GroupPart* part) {
  gpu::Group::Launch launch = plan(place_, arrays, GroupLimits(place_.size));
  launch.call.nanoseconds = to_nanoseconds(seconds);
  std::shared_ptr<GroupPart::Hold> hold;
  if (part != nullptr && !launch.by_packets) hold = part->hold(launch.call);
  launch.kept = hold;
  auto waits = std::make_shared<const gpu::KernelsWait>();
  std::shared_ptr<Transfer> transfer;
  {
    const std::lock_guard lock(mutex_);
    check();
    std::copy_n(addresses_.arenas, place_.size, launch.call.arenas);
    const auto number = group_->launch(launch, stream);
    if (!number) {
      if (hold) note_captured(hold);
      return nullptr;
    }
    transfer = std::make_shared<Transfer>(host_.poller, arrays.nbytes, route_);
    entries_.push_back(
        {*number, launch.call.code, seconds, transfer, std::move(waits), std::move(hold)});
  }
  const bool is_first = !polled_.exchange(true);
  if (is_first) host_.poller->add(shared_from_this());
  if (pending_.fetch_add(1, std::memory_order_release) == 0 || is_first) host_.look();
  return transfer;
}

// With mutex_ held.
void GpuGroup::note_captured(const std::shared_ptr<GroupPart::Hold>& hold) {
  if (captured_.size() >= next_sweep_) {
    std::erase_if(captured_, [](const auto& each) { return each.expired(); });
    next_sweep_ = std::max<std::size_t>(64, 2 * captured_.size());
  }
  captured_.push_back(hold);
}

void GpuGroup::poll() noexcept {
  std::deque<Entry> done;
  {
    const std::unique_lock lock(mutex_, std::try_to_lock);
    if (!lock.owns_lock()) return;
    const std::uint32_t ended = group_->ended();
    const auto rest = std::ranges::find_if_not(
        entries_, [&](const Entry& entry) { return is_among(ended, entry.number); });
    if (rest == entries_.begin()) return;
    done.insert(done.end(), std::make_move_iterator(entries_.begin()),
                std::make_move_iterator(rest));
    entries_.erase(entries_.begin(), rest);
  }
  const std::uint32_t well = group_->ended_well();
  for (Entry& entry : done) finish(entry, is_among(well, entry.number));
  pending_.fetch_sub(static_cast<std::uint32_t>(done.size()), std::memory_order_release);
  host_.poller->wake();
}

// A failure is also reported: the program's stream goes on, and nobody may look at the Transfer.
void GpuGroup::finish(Entry& entry, bool well) noexcept {
  if (!well) {
    Failure failure = failure_of(text_of_code(entry.code), entry.seconds);
    report(name_ + ": " + failure.message);
    entry.transfer->fail(std::move(failure));
  }
  entry.transfer->drop();
}

Failure GpuGroup::failure_of(const std::string& call, double seconds) const noexcept try {
  const GroupEnd end = group_->failure();
  const std::string rank = "rank " + std::to_string(end.rank);
  const std::string goes_on = "; the stream continues without it";
  if (end.what == GroupEnd::differs) {
    return {.kind = Failure::Kind::invalid_argument,
            .message = call + ": " + rank + " has called " + text_of_code(end.other) +
                       ": all ranks must make the same calls in the same order" + goes_on};
  }
  if (end.what == GroupEnd::left) {
    return {.kind = Failure::Kind::peer_lost,
            .message = call + ": " + rank + " is lost (it has left)" + goes_on,
            .effect = Effect::some};
  }
  if (end.what == GroupEnd::late) {
    std::string message = call + ": " + rank + " did not come";
    if (seconds > 0) message += " in " + seconds_text(seconds);
    if (end.other != 0) message += "; its latest call was " + text_of_code(end.other);
    return {
        .kind = Failure::Kind::timeout,
        .message = message + goes_on +
                   ". On all ranks the arrays must be on GPUs, and stream=, counts= and lists of "
                   "arrays given alike. If a program was blocked meanwhile: "
                   "CUDA loads a kernel at its first launch, and waits for all streams to do so "
                   "(set CUDA_MODULE_LOADING=EAGER, or launch it once before)",
        .effect = Effect::some};
  }
  if (const std::string lost = loss(); !lost.empty()) {
    return {.kind = Failure::Kind::peer_lost,
            .message = call + ": " + lost + goes_on,
            .effect = Effect::some};
  }
  return {.message = call + ": the World was closed" + goes_on, .effect = Effect::some};
} catch (const std::bad_alloc&) {
  return {.message = "out of memory"};  // short enough to need no allocation
}

}  // namespace zerohop::engine::collective
