// Works, requests, and their completion. Chunks are in staging_chunks.cpp.
#include "engine/path/staged/staging.hpp"

#include <algorithm>
#include <cstring>
#include <string>
#include <utility>

#include "base/error.hpp"
#include "engine/memory/memory.hpp"
#include "engine/path/verbs/peer_rail.hpp"

namespace zerohop::engine {
namespace {

// Limit of a correct peer's outstanding requests: all slots of one ring for each of its GPUs, and
// more.
constexpr std::size_t kMaxRequests = 1024;

// Callers wait if this many works are under way, which bounds the memory.
constexpr int kMaxWorks = 256;

// One range as sent over the wire.
struct Range {
  std::uint64_t key;
  std::uint64_t address;
  std::uint64_t nbytes;
};
static_assert(sizeof(Range) <= MessageWindow::kLeastBytes);

// If the peer is lost, it is lost to the following works as well. Any other error concerns the
// earlier work, its memory or copies: the following ones are flushed, as behind a failed request of
// a queue pair.
Failure cut_off_by(const Failure& earlier) {
  Failure failure = earlier;
  failure.set_effect(Effect::nothing);
  failure.message = "it had to follow an earlier transfer, which failed: " + failure.message;
  if (failure.kind == Failure::Kind::peer_lost) return failure;
  failure.kind = Failure::Kind::verbs;
  failure.code = IBV_WC_WR_FLUSH_ERR;
  return failure;
}

}  // namespace

std::size_t ranges_within(std::size_t nbytes) { return nbytes / sizeof(Range); }

std::vector<std::byte> encode_ranges(const std::vector<StagedSpan>& spans) {
  std::vector<std::byte> bytes(spans.size() * sizeof(Range));
  std::byte* at = bytes.data();
  for (const StagedSpan& span : spans) {
    const Range range{span.piece->key, span.far, span.nbytes};
    std::memcpy(at, &range, sizeof range);
    at += sizeof range;
  }
  return bytes;
}

void Staging::wake() {
  if (services_.stager->wake(shared_from_this())) return;
  throw Error("this Endpoint is closed, or has no thread for staged transfers: make a new one");
}

void Staging::put(StagedWork work) {
  if (work.followed()) {
    work.followed()->on_done([stager = services_.stager] { stager->nudge(); });
  }
  const std::lock_guard lock(inbox_mutex_);
  new_works_.push_back(std::move(work));
  new_works_.back().set_number(put_.fetch_add(1) + 1);
  services_.pending->staged.fetch_add(1);
  try {
    wake();
  } catch (...) {  // nothing will run it
    new_works_.pop_back();
    put_.fetch_sub(1);
    services_.pending->staged.fetch_sub(1);
    throw;
  }
}

void Staging::wait_for_room(const Deadline& deadline) const {
  if (services_.pending->staged.load() <= kMaxWorks) return;
  services_.poller->wait([this] { return services_.pending->staged.load() <= kMaxWorks / 2; },
                         deadline);
}

StagedPiece Staging::beside(const Layout& near, std::shared_ptr<const gpu::Device> gpu,
                            const void* packed) {
  return {.near = near,
          .far = Layout::contiguous(reinterpret_cast<std::uint64_t>(packed), near.dtype,
                                    near.shape.span()),
          .gpu = std::move(gpu),
          .by = StagedPiece::By::here};
}

void Staging::deliver(const PostedReceive& receive, const Layout& into, const StagedMessage& came) {
  const Message& message = came.message;
  StagedWork work(receive.transfer, StagedWork::Direction::in);
  if (message.kind == MessageKind::eager) {
    auto packed = std::make_shared<std::vector<std::byte>>(came.payload);
    work.add(beside(into, receive.gpu, packed->data()));
    receive.transfer->keep(std::move(packed));
  } else {
    StagedPiece piece{.near = into,
                      .far = Layout::contiguous(message.address, into.dtype, into.shape.span()),
                      .gpu = receive.gpu};
    piece.rkeys[came.rail] = message.value;
    if (!came.payload.empty()) {
      piece.by = StagedPiece::By::owner;
      std::memcpy(&piece.key, came.payload.data(), sizeof piece.key);
    }
    work.add(std::move(piece));
    work.answer({came.rail, came.epoch, message.id});
  }
  put(std::move(work));
}

void Staging::serve(StagedMessage request) {
  if (request.payload.size() % sizeof(Range) != 0) {
    throw ProtocolError(
        "a request for staged memory is truncated: both sides must run the same "
        "version of zerohop");
  }
  {
    const std::lock_guard lock(inbox_mutex_);
    if (new_requests_.size() >= kMaxRequests) {
      throw ProtocolError(
          "peer '" + group_->peer_name +
          "' sent more requests for staged memory at a time than a correct peer does");
    }
    new_requests_.push_back(std::move(request));
  }
  wake();
}

Staging::Pace Staging::advance() {
  take_inbox();
  std::erase_if(chunks_, [this](Chunk& chunk) { return step(chunk); });
  start_chunks(answers_, answer_rings_);
  start_chunks(works_, work_rings_);
  retire_answers();
  retire_works();
  note_settled();
  if (std::ranges::any_of(chunks_, [](const Chunk& chunk) { return !chunk.move; })) {
    return Pace::at_once;
  }
  return any_hung() ? Pace::now_and_then : Pace::when_asked;
}

bool Staging::any_hung() noexcept {
  const auto hung = [](auto& ring) { return ring.second->stuck() != 0; };
  const bool works = std::ranges::count_if(work_rings_, hung) > 0;  // queries all of them
  return std::ranges::count_if(answer_rings_, hung) > 0 || works;
}

void Staging::take_inbox() {
  std::vector<StagedMessage> requests;
  {
    const std::lock_guard lock(inbox_mutex_);
    if (!new_works_.empty()) taken_ = new_works_.back().number();
    works_.splice(works_.end(), new_works_);
    if (answers_.size() < kMaxRequests) requests.swap(new_requests_);
  }
  for (const StagedMessage& request : requests) {
    try {
      accept(request);
    } catch (const std::exception& error) {  // otherwise the peer would wait for an answer
      const std::lock_guard lock(group_->mutex);
      PeerRail* const peer_rail = group_->at(request.rail);
      if (peer_rail != nullptr) peer_rail->put_in_error(error.what());
    }
  }
}

void Staging::note_settled() {
  const std::uint64_t settled = works_.empty() ? taken_ : works_.front().number() - 1;
  if (settled_.exchange(settled) != settled) services_.poller->wake();
}

// pull: from the peer's slot into our memory; push: from our memory into the peer's slot.
void Staging::accept(const StagedMessage& request) {
  const bool in = request.message.kind == MessageKind::pull;
  auto transfer = std::make_shared<Transfer>(services_.poller, request.message.nbytes, nullptr);
  StagedWork work(std::move(transfer), in ? StagedWork::Direction::in : StagedWork::Direction::out);
  work.answer({request.rail, request.epoch, request.message.id});
  if (!add_ranges(request, work)) {
    work.fail({.kind = Failure::Kind::verbs, .message = {}, .code = IBV_WC_REM_ACCESS_ERR});
  }
  answers_.push_back(std::move(work));
}

// False: the peer has no right to some of them.
bool Staging::add_ranges(const StagedMessage& request, StagedWork& work) const {
  const Message& message = request.message;
  std::uint64_t at = 0;
  for (std::size_t i = 0; i < request.payload.size(); i += sizeof(Range)) {
    Range range{};
    std::memcpy(&range, request.payload.data() + i, sizeof range);
    const Extent extent{range.address, range.address + range.nbytes};
    const auto memory =
        services_.memories->find(range.key, extent, work.direction() == StagedWork::Direction::in);
    if (!memory || range.nbytes > message.nbytes - at) return false;
    StagedPiece piece{.near = Layout::bytes(range.address, range.nbytes),
                      .far = Layout::bytes(message.address + at, range.nbytes),
                      .gpu = memory->device,
                      .right = range.key};
    piece.rkeys[request.rail] = message.value;
    work.add(std::move(piece));
    at += range.nbytes;
  }
  return at == message.nbytes;
}

void Staging::retire_works() {
  for (auto next = works_.begin(); next != works_.end();) {
    const auto work = next++;
    if (!work->ended() && work->followed() && work->followed()->done()) {
      if (const Failure* failure = work->followed()->failure()) work->fail(*failure);
    }
    if (!work->is_done()) continue;
    // Its message waits for all earlier works.
    if (!work->ended() && work->finish() && work != works_.begin()) continue;
    for (auto later = next; work->ended() && later != works_.end(); ++later) {
      if (later->finish()) later->fail(cut_off_by(*work->ended()));
    }
    finish(*work);
    works_.erase(work);
    next = works_.begin();  // others may have waited for this one
  }
}

void Staging::finish(StagedWork& work) noexcept {
  const std::shared_ptr<Transfer> transfer = work.transfer();
  if (work.answers()) answer(work);
  if (work.ended() || !work.finish()) {
    if (work.ended()) transfer->fail(work.conclusion());
    services_.pending->staged.fetch_sub(
        1);  // before it is done: a thread that sees that must find nothing pending
    transfer->drop();
    return services_.poller->wake();
  }
  try {
    work.finish()();
  } catch (const std::exception&) {
    transfer->fail(Failure::of_current_exception());
    transfer->drop();
  }
  services_.pending->staged.fetch_sub(
      1);  // after the message, which a later one sent at once must not overtake
  services_.poller->wake();
}

// With the lock of the group held: whether the request is still open.
bool Staging::is_asked(const StagedAnswer& answer) const {
  const PeerRail* const peer_rail = group_->at(answer.rail);
  return peer_rail != nullptr && !peer_rail->closed() && peer_rail->epoch() == answer.epoch;
}

bool Staging::stands(const StagedAnswer& answer) const {
  const std::lock_guard lock(group_->mutex);
  return is_asked(answer);
}

void Staging::retire_answers() {
  std::erase_if(answers_, [this](StagedWork& work) {
    if (!work.is_done()) return false;
    answer(work);
    return true;
  });
}

void Staging::answer(const StagedWork& work) noexcept {
  const StagedAnswer& to = *work.answers();
  Message message{.kind = MessageKind::taken, .id = to.id};
  if (work.ended()) {
    const bool refused = work.ended()->code == IBV_WC_REM_ACCESS_ERR;
    message.value = refused ? IBV_WC_REM_ACCESS_ERR : IBV_WC_REM_OP_ERR;
  }
  const std::lock_guard lock(group_->mutex);
  if (!is_asked(to)) return;
  PeerRail* const peer_rail = group_->at(to.rail);
  try {
    Job job(std::make_shared<Transfer>(services_.poller, 0, nullptr), IBV_WR_RDMA_WRITE);
    job.then(message);
    peer_rail->enqueue(std::move(job));
  } catch (const std::exception& error) {
    peer_rail->put_in_error(error.what());  // otherwise the peer would wait for an answer
  }
}

}  // namespace zerohop::engine
