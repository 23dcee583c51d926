// What a rank copies itself, bit by bit, while it looks for messages: large blocks between ranks
// that copy from and to each other, and its own ones.
#include <algorithm>
#include <cstring>

#include "base/stream_copy.hpp"
#include "engine/collective/exchange.hpp"

namespace zerohop::engine::collective {
namespace {

// Bytes that a rank gets and copies in a step. So many do not stay in the caches: with 2 ranks on
// two cores and 32 MiB of cache, all_gather of 16 MiB took 1.2 ms past them, and 2.0 ms through
// them, of 4 MiB as long either way; broadcast of 16 MiB 0.8 and 0.5 ms.
constexpr std::uint64_t kBeyondCaches = std::uint64_t{32} << 20;

// The receiver wants blocks of so many bytes to be written to their target, so that each rank
// copies once. It wants slices of smaller ones, and where it has nothing else to do, sends none and
// gets one: they need no registration, and the two ranks share the work.
constexpr std::uint64_t kWritten = std::uint64_t{8} << 20;
constexpr std::uint64_t kWrittenAtOnce = std::uint64_t{512} << 10;  // bytes written at a time

}  // namespace

bool Exchange::is_beyond_caches() const noexcept {
  std::uint64_t nbytes = 0;
  for (const Move& move : receives_) nbytes += move.nbytes;
  for (const Copy& copy : step_.meanwhile) nbytes += copy.target.nbytes;
  return nbytes >= kBeyondCaches;
}

void Exchange::copy_slice(std::byte* to, const std::byte* from, std::uint64_t nbytes) noexcept {
  if (beyond_caches_) {
    stream_copy(to, from, nbytes);
  } else {
    std::memcpy(to, from, nbytes);
  }
}

// Not what a reduction combines: it has registered memory for it.
bool Exchange::comes_in_slices(const Line& line, const Move& move) const noexcept {
  if (!line.near() || move.small() || move.bytes == nullptr || move.may_stay || move.asked) {
    return false;
  }
  const auto is_large = [](const Move& each) { return !each.small(); };
  return move.nbytes < kWritten || (std::ranges::none_of(sends_, is_large) &&
                                    std::ranges::count_if(receives_, is_large) == 1);
}

void Exchange::send_in_slices(const Move& move) {
  if (move.bytes == nullptr) return say(What::ask, move);
  sliced_.push_back(&move);
}

void Exchange::slice_sent(Line& line, Move& move) {
  move.moved += move.next_slice();
  if (move.moved < move.nbytes) return;
  std::erase(sliced_, &move);
  line.outgoing.bring(move.label);
  line.outgoing.pop();
  --missing_;
}

Exchange::Stop Exchange::slice_arrived(Line& line, Move& move, const Message& message) {
  if (message.payload.size() != move.next_slice()) {
    return Outcome{.news = News::length,
                   .rank = line.rank(),
                   .move = &move,
                   .label = move.label,
                   .nbytes = message.payload.size()};
  }
  copy_slice(move.bytes + move.moved, message.payload.data(), message.payload.size());
  move.moved += message.payload.size();
  if (move.moved < move.nbytes) return pause();
  line.incoming.pop();
  --missing_;
  return std::nullopt;
}

// A long call stops now and then for signals and its timeout, however well it goes.
Exchange::Stop Exchange::pause() {
  if (!pause_) pause_ = until();
  if (pause_->passed()) return Outcome{.news = News::quiet};
  return std::nullopt;
}

// False: nothing can be done before another rank has done something.
bool Exchange::has_work() const noexcept {
  const auto has_room = [&](const Move* move) {
    return lines_->at(move->rank).fits(move->next_slice());
  };
  return !to_write_.empty() || meanwhile_ < step_.meanwhile.size() ||
         (said_ == to_say_.size() && std::ranges::any_of(sliced_, has_room));
}

// A part of each block. A part that a rank sends to others and copies for itself is read from
// memory once.
Exchange::Stop Exchange::work() {
  if (said_ == to_say_.size()) say_slices();
  if (Stop stop = write_next()) return stop;
  copy_next(to_write_.empty() ? kEager : kWrittenAtOnce);
  lines_->peek(to_take_);
  return pause();
}

// All has been said: no slice is queued twice. One for each line at most, where there is room for
// it.
void Exchange::say_slices() {
  to_say_.clear();
  said_ = 0;
  for (const Move* move : sliced_) {
    const Line* const line = &lines_->at(move->rank);
    const bool is_free =
        std::ranges::none_of(to_say_, [&](const Saying& saying) { return saying.line == line; });
    if (is_free && line->fits(move->next_slice())) say(What::data, *move);
  }
}

// Writes to one rank after another in turn; what no CPU writes, as a whole.
Exchange::Stop Exchange::write_next() {
  if (to_write_.empty()) return std::nullopt;
  std::ranges::rotate(to_write_, to_write_.begin() + 1);
  auto& [line, move, there, written] = to_write_.back();
  if (!provide(own_send(*move))) {
    return Outcome{.news = News::unregistered, .rank = line->rank(), .move = move};
  }
  culprit_ = line->rank();
  line->look();
  if (line->near() && move->bytes != nullptr && there.on_host()) {
    const std::uint64_t nbytes = std::min(kWrittenAtOnce, move->nbytes - written);
    const auto from = reinterpret_cast<std::uint64_t>(move->bytes) + written;
    line->write(move->memory->range(from, nbytes),
                there.range(there.layout.address + written, nbytes), last_);
    written += nbytes;
  } else {
    line->write(*move->memory, there, last_);
    written = move->nbytes;
  }
  culprit_.reset();
  if (written < move->nbytes) return std::nullopt;
  say(What::done, *move);  // after the data, as every notification
  to_write_.pop_back();
  return std::nullopt;
}

void Exchange::copy_next(std::uint64_t most) noexcept {
  if (meanwhile_ == step_.meanwhile.size()) return;
  const auto& [target, source] = step_.meanwhile[meanwhile_];
  std::byte* const to = schedule_->at(target);
  const std::byte* const from = schedule_->at(source);
  const std::uint64_t left = target.nbytes - copied_bytes_;
  const std::uint64_t nbytes = to == from ? left : std::min(most, left);
  if (to != from && nbytes > 0) copy_slice(to + copied_bytes_, from + copied_bytes_, nbytes);
  copied_bytes_ += nbytes;
  if (copied_bytes_ < target.nbytes) return;
  ++meanwhile_;
  copied_bytes_ = 0;
}

}  // namespace zerohop::engine::collective
