// The chunks of staged transfers: copy and move, or move and copy.
#include <algorithm>
#include <bit>
#include <cstring>
#include <string>
#include <utility>

#include "base/error.hpp"
#include "driver/cuda_call.hpp"
#include "engine/path/staged/staging.hpp"
#include "engine/path/verbs/peer_rail.hpp"

namespace zerohop::engine {
namespace {

// Shorter than the five seconds after which peers consider this process lost.
constexpr std::chrono::seconds kCopyPatience{4};

Failure copy_failure(const gpu::Device& device, int status, StagedWork::Direction direction) {
  if (status == driver::kCudaErrorNotReady) status = driver::kCudaErrorTimeout;  // too slow
  Failure failure;
  try {
    driver::check_cuda(device.cuda(), status,
                       "copying memory of " + device.facts().device_name() + " through the host");
  } catch (const CudaError&) {
    failure = Failure::of_current_exception();
  }
  failure.set_effect(direction == StagedWork::Direction::in ? Effect::some : Effect::nothing);
  return failure;
}

}  // namespace

// Each in turn takes a slot, those with the fewest first, so that none waits for all of another.
void Staging::start_chunks(Works& works, Rings& rings) {
  std::vector<StagedWork*> turns;
  for (StagedWork& work : works) turns.push_back(&work);
  std::ranges::stable_sort(turns, {}, &StagedWork::chunks);
  for (bool any = true; any;) {
    any = false;
    for (StagedWork* work : turns) any = start_chunk(*work, rings) || any;
  }
}

// False: no chunk or no slot is left.
bool Staging::start_chunk(StagedWork& work, Rings& rings) {
  const StagedPiece* piece = nullptr;
  if (work.ended() || (piece = work.upcoming()) == nullptr) return false;
  try {
    StagingRing& ring = ring_of(rings, piece->gpu);
    if (const int stuck = ring.stuck(); stuck != 0) {
      Failure failure = copy_failure(*piece->gpu, stuck, work.direction());
      failure.set_effect(Effect::nothing);
      work.fail(std::move(failure));
      return false;
    }
    const auto slot = ring.take();
    if (!slot) return false;
    Chunk chunk{.work = &work, .ring = &ring, .slot = *slot, .spans = {}, .nbytes = 0, .move = {}};
    // The list of a chunk's parts must fit into one message to the peer.
    const std::size_t named = ranges_within(group_->eager_limit());
    chunk.spans = work.cut(ring.chunk(), std::min(StagedWork::kMaxSpans, named));
    for (const StagedSpan& span : chunk.spans) chunk.nbytes += span.nbytes;
    work.begin_chunk();
    work.transfer()->note_begun();
    chunks_.push_back(std::move(chunk));
  } catch (const std::exception&) {
    work.fail(Failure::of_current_exception());
    return false;
  }
  if (work.direction() == StagedWork::Direction::out) {
    copy(chunks_.back());
  } else {
    move(chunks_.back());
  }
  return true;
}

StagingRing& Staging::ring_of(Rings& rings, const std::shared_ptr<const gpu::Device>& gpu) {
  const int ordinal = gpu ? gpu->ordinal() : -1;
  if (const auto known = rings.find(ordinal); known != rings.end()) return *known->second;
  // Made before it has an entry: registering its memory may fail.
  auto ring = std::make_shared<StagingRing>(gpu, *services_.registrations, services_.chunk);
  return *rings.emplace(ordinal, std::move(ring)).first->second;
}

// True: the chunk has ended.
bool Staging::step(Chunk& chunk) { return chunk.move ? step_move(chunk) : step_copy(chunk); }

bool Staging::step_copy(Chunk& chunk) {
  StagedWork& work = *chunk.work;
  const gpu::Device* gpu = chunk.spans.front().piece->gpu.get();
  const int status = chunk.ring->query(chunk.slot);
  if (status == driver::kCudaErrorNotReady && Clock::now() - chunk.copying < kCopyPatience) {
    return false;
  }
  if (status != 0) {
    park(chunk, copy_failure(*gpu, status, work.direction()));
    return true;
  }
  chunk.held.clear();
  const bool out = work.direction() == StagedWork::Direction::out;
  if (out && !work.ended()) {
    move(chunk);
    return false;
  }
  chunk.ring->give_back(chunk.slot);
  work.end_chunk(!out);
  return true;
}

// Its copies may still run: they keep slot and memory until they are known to have ended.
void Staging::park(Chunk& chunk, Failure failure) {
  const auto kept = chunk.work->transfer()->kept();
  chunk.held.insert(chunk.held.end(), kept.begin(), kept.end());
  chunk.ring->park(chunk.slot, std::move(chunk.held));
  chunk.work->fail(std::move(failure));
  chunk.work->end_chunk(false);
}

bool Staging::step_move(Chunk& chunk) {
  if (!chunk.move->done()) return false;
  StagedWork& work = *chunk.work;
  const bool out = work.direction() == StagedWork::Direction::out;
  const Failure* failure = chunk.move->failure();
  if (failure != nullptr) {
    Failure known = *failure;
    if (!out) known.set_effect(Effect::nothing);  // the data received was not copied
    work.fail(std::move(known));
  }
  if (!out && !work.ended()) {
    copy(chunk);
    return false;
  }
  chunk.ring->give_back(chunk.slot);
  work.end_chunk(out && failure == nullptr);
  return true;
}

// If no copy starts, the work has failed, and step_copy() finds the slot idle.
void Staging::copy(Chunk& chunk) {
  StagedWork& work = *chunk.work;
  chunk.move.reset();
  chunk.copying = Clock::now();
  try {
    if (!borrow(chunk)) {
      return work.fail(
          {.kind = Failure::Kind::verbs, .message = {}, .code = IBV_WC_REM_ACCESS_ERR});
    }
    const int stuck = chunk.ring->stuck();
    const int status = stuck != 0 ? stuck : start_copies(chunk);
    if (status == 0) return;
    work.fail(copy_failure(*chunk.spans.front().piece->gpu, status, work.direction()));
  } catch (const std::exception&) {
    work.fail(Failure::of_current_exception());
  }
}

int Staging::start_copies(const Chunk& chunk) {
  std::vector<StagingRing::Copy> copies;
  copies.reserve(chunk.spans.size());
  std::byte* host = chunk.ring->slot(chunk.slot);
  for (const StagedSpan& span : chunk.spans) {
    copies.push_back({host, span.near, span.nbytes});
    host += span.nbytes;
  }
  const bool out = chunk.work->direction() == StagedWork::Direction::out;
  return chunk.ring->start(
      chunk.slot, out ? StagingRing::Direction::to_host : StagingRing::Direction::to_device,
      copies);
}

// Data requested by a peer is copied only while its connection stands and the memory is open.
// False: no longer.
bool Staging::borrow(Chunk& chunk) {
  const auto& answer = chunk.work->answers();
  std::uint64_t last = 0;
  for (const StagedSpan& span : chunk.spans) {
    const std::uint64_t right = span.piece->right;
    if (right == std::exchange(last, right)) continue;  // none for a recv(), or the same again
    if (chunk.held.empty()) {
      answering_.fetch_add(1);  // before checking the path: close() checks this afterwards
      chunk.held.push_back(
          std::shared_ptr<void>(nullptr, [this](void*) { answering_.fetch_sub(1); }));
    }
    chunk.held.push_back(services_.memories->borrow(right));
    if (chunk.held.back() != nullptr && stands(*answer)) continue;
    chunk.held.clear();
    return false;
  }
  return true;
}

void Staging::move(Chunk& chunk) {
  try {
    chunk.move = std::make_shared<Transfer>(services_.poller, chunk.nbytes, nullptr);
    chunk.move->on_done([stager = services_.stager] { stager->nudge(); });
    switch (chunk.spans.front().piece->by) {
      case StagedPiece::By::device: return move_by_device(chunk);
      case StagedPiece::By::owner: return move_by_owner(chunk);
      case StagedPiece::By::here: return move_here(chunk);
    }
  } catch (const std::exception&) {
    if (!chunk.move) return chunk.work->fail(Failure::of_current_exception());
    chunk.move->fail(Failure::of_current_exception());
    chunk.move->drop();
  }
}

void Staging::move_here(const Chunk& chunk) {
  const bool out = chunk.work->direction() == StagedWork::Direction::out;
  std::byte* host = chunk.ring->slot(chunk.slot);
  for (const StagedSpan& span : chunk.spans) {
    void* const far = reinterpret_cast<void*>(span.far);
    std::memcpy(out ? far : host, out ? host : far, span.nbytes);
    host += span.nbytes;
  }
  chunk.move->drop();
}

// With the lock of the group held, like the next two. Throws if no rail is left.
PeerRail& Staging::path_for(const Chunk& chunk) const {
  RailMask mask = chunk.spans.front().piece->rails();
  for (RailIndex rail = 0; rail < kMaxRails; ++rail) {
    if (chunk.ring->regions().lkey(rail) == 0) mask &= ~(RailMask{1} << rail);
  }
  if ((mask & group_->serving()) != 0) mask &= group_->serving();
  if (((mask >> group_->message_rail()) & 1) != 0) mask = RailMask{1} << group_->message_rail();
  PeerRail* const peer_rail =
      mask != 0 ? group_->at(static_cast<RailIndex>(std::countr_zero(mask))) : nullptr;
  const auto& answer = chunk.work->answers();
  if (peer_rail != nullptr && (!answer || is_asked(*answer))) return *peer_rail;
  throw RouteUnavailable("no rail reaches both arrays of this transfer with peer '" +
                         group_->peer_name + "' any more: register them again on both sides");
}

void Staging::move_by_device(Chunk& chunk) {
  const bool out = chunk.work->direction() == StagedWork::Direction::out;
  const std::lock_guard lock(group_->mutex);
  PeerRail& peer_rail = path_for(chunk);
  Job job(chunk.move, out ? IBV_WR_RDMA_WRITE : IBV_WR_RDMA_READ);
  job.reserve(chunk.spans.size());
  auto host = reinterpret_cast<std::uint64_t>(chunk.ring->slot(chunk.slot));
  for (const StagedSpan& span : chunk.spans) {
    job.add({.local = Layout::bytes(host, span.nbytes),
             .remote = Layout::bytes(span.far, span.nbytes),
             .lkey = chunk.ring->regions().lkey(peer_rail.rail()),
             .rkey = span.piece->rkeys[peer_rail.rail()]});
    host += span.nbytes;
  }
  if (out && (chunk.work->visible() || peer_rail.rail() != group_->message_rail())) job.read_back();
  peer_rail.enqueue(std::move(job));
}

void Staging::move_by_owner(Chunk& chunk) {
  const bool out = chunk.work->direction() == StagedWork::Direction::out;
  const Message message{.kind = out ? MessageKind::pull : MessageKind::push,
                        .nbytes = chunk.nbytes,
                        .address = reinterpret_cast<std::uint64_t>(chunk.ring->slot(chunk.slot))};
  SendBuffer ranges = services_.sends->take(0);
  ranges.append(encode_ranges(chunk.spans));
  const std::lock_guard lock(group_->mutex);
  PeerRail* const peer_rail = group_->at(group_->message_rail());
  const auto& answer = chunk.work->answers();
  if (peer_rail == nullptr || (answer && !is_asked(*answer))) {
    throw VerbsError("the rail with peer '" + group_->peer_name +
                     "' chosen for this transfer no longer works: try again");
  }
  peer_rail->put_offer(chunk.move, message, chunk.ring->regions().rkeys(), std::move(ranges));
}

}  // namespace zerohop::engine
