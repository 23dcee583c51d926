#include "engine/collective/exchange.hpp"

#include <algorithm>
#include <array>
#include <cstring>
#include <utility>

namespace zerohop::engine::collective {

bool Expected::bring(const Label& label) noexcept {
  const auto begin = moves_.begin() + static_cast<std::ptrdiff_t>(next_);
  const auto found =
      std::find_if(begin, moves_.end(), [&](const Move* move) { return move->label == label; });
  if (found == moves_.end()) return false;
  std::rotate(begin, found, found + 1);
  return true;
}

namespace {

// Before what stays in the inboxes is copied, to make room for others.
constexpr Deadline::Seconds kPatience{1e-3};

constexpr unsigned bit(What what) { return 1U << static_cast<unsigned>(what); }
constexpr unsigned kFromSender =
    bit(What::data) | bit(What::announce) | bit(What::done) | bit(What::ask);

}  // namespace

void Exchange::begin(std::vector<Move>& sends, std::vector<Move>& receives, bool of_all) {
  end();
  schedule_.reset();
  step_.clear();
  meanwhile_ = copied_bytes_ = 0;
  step_.sends.swap(sends);
  step_.receives.swap(receives);
  of_all_ = of_all;
  begin_moves();
  step_.sends.swap(sends);
  step_.receives.swap(receives);
}

void Exchange::begin_moves() {
  sends_.swap(step_.sends);
  receives_.swap(step_.receives);
  add_partners(receives_);
  add_partners(sends_);
  to_say_.reserve(sends_.size());  // enough as a rule
  lines_->outbox().forget();
  beyond_caches_ = is_beyond_caches();
  for (Move& move : receives_) {
    move.arrived = move.bytes;
    move.moved = 0;
    move.asked = false;
    lines_->at(move.rank).incoming.add(&move);
    ++missing_;
    if (!move.small()) say(What::ready, move);
  }
  for (Move& move : sends_) {
    move.moved = 0;
    if (move.eager()) {
      say(What::data, move);
      continue;
    }
    lines_->at(move.rank).outgoing.add(&move);
    ++missing_;
    if (move.small()) say(What::announce, move);
  }
}

void Exchange::end() noexcept {
  for (const auto& [line, message] : staying_) line->emptied(message);
  staying_.clear();
  for (Line* line : partners_) {
    line->incoming.clear();
    line->outgoing.clear();
  }
  partners_.clear();
  to_say_.clear();
  to_write_.clear();
  sliced_.clear();
  said_ = missing_ = 0;
  announced_ = false;
}

void Exchange::add_partners(const std::vector<Move>& moves) {
  for (const Move& move : moves) {
    Line* const line = &lines_->at(move.rank);
    if (std::ranges::find(partners_, line) != partners_.end()) continue;
    partners_.push_back(line);
    line->incoming.clear();
    line->outgoing.clear();
    line->proposes = false;
  }
}

Deadline Exchange::until() const {
  const Deadline slice = Deadline::after(slice_);
  return slice.at() < last_.at() ? slice : last_;
}

Exchange::Stop Exchange::run_moves() {
  to_take_ = partners_;  // another call may have consumed their notifications
  for (;;) {
    const bool has_said_all = said_ == to_say_.size();
    if (!has_said_all && fits(to_say_[said_])) {
      if (Stop stop = say_next()) return stop;
    } else if (!to_take_.empty()) {
      Line& line = *to_take_.back();
      if (Stop stop = take_from(line)) return stop;
      std::erase(to_take_, &line);
    } else if (has_work()) {
      if (Stop stop = work()) return stop;
    } else if (!has_said_all) {
      if (Stop stop = say_next()) return stop;  // waits for room
    } else if (missing_ == 0) {
      return finish();
    } else if (!hear()) {
      return Outcome{.news = News::quiet};
    }
  }
}

// --- sending ---

bool Exchange::fits(const Saying& saying) noexcept {
  switch (saying.what) {
    case What::data: return saying.line->fits(saying.move->next_slice());
    case What::ready: return saying.line->fits(kMostReady);
    default: return saying.line->fits(0);
  }
}

void Exchange::say(What what, const Move& move) {
  to_say_.push_back({&lines_->at(move.rank), what, &move});
}

Exchange::Stop Exchange::say_next() {
  const Saying next = to_say_[said_];
  Line& line = *next.line;
  if (!fits(next)) {
    culprit_ = line.rank();
    line.look();
    culprit_.reset();
    const bool any = await_room();
    if (line.is_over() || !any) return Outcome{.news = News::full, .rank = line.rank()};
    return std::nullopt;
  }
  if (!line.met()) return Outcome{.news = News::unmet, .rank = line.rank()};
  std::vector<std::byte> where;
  if (next.what == What::ready && !comes_in_slices(line, *next.move)) {
    if (!provide(own_receive(*next.move))) {
      return Outcome{.news = News::unregistered, .rank = line.rank(), .move = next.move};
    }
    where = next.move->memory->remote().to_bytes();
  }
  std::span<const std::byte> payload = where;
  if (next.what == What::data) {
    payload = {next.move->bytes + next.move->moved, next.move->next_slice()};
  }
  const Header header{.label = next.move->label,
                      .what = next.what,
                      .proposes = static_cast<std::uint8_t>(proposes_ ? 1 : 0),
                      .emptied = line.taken_count(),
                      .length = static_cast<std::uint32_t>(payload.size())};
  culprit_ = line.rank();
  line.look();
  const bool put = line.put(header, payload);
  culprit_.reset();
  if (!put) {
    if (Stop stop = send(line, header, payload)) return stop;
    if (next.what != What::data) lines_->outbox().forget();  // the payload is about to change
  }
  ++said_;
  if (next.what == What::data && !next.move->small()) slice_sent(line, own_send(*next.move));
  return std::nullopt;
}

// Sends from the outbox.
Exchange::Stop Exchange::send(Line& line, const Header& header,
                              std::span<const std::byte> payload) {
  while (line.checked() && line.oldest()) {
    if (Stop stop = await(line, line.oldest())) return stop;
  }
  Outbox& outbox = lines_->outbox();
  for (const Outbox::Use& use : outbox.uses_of_next()) {
    if (Stop stop = await(*use.line, use.transfer)) return stop;
  }
  culprit_ = line.rank();
  auto posted = line.send(outbox.put(header, payload), last_);
  culprit_.reset();
  if (posted) outbox.use({std::move(posted), &line});
  return std::nullopt;
}

// Waits for a transfer over that line. Throws the error that ended it.
Exchange::Stop Exchange::await(Line& line, const std::shared_ptr<Transfer>& transfer) {
  if (!transfer->done() && !transfer->wait(until())) {
    return Outcome{.news = News::under_way, .rank = line.rank(), .transfer = transfer};
  }
  culprit_ = line.rank();
  (void)transfer->result();
  line.look();
  culprit_.reset();
  return std::nullopt;
}

void Exchange::announce() {
  if (std::exchange(announced_, true)) return;
  for (Line* line : partners_) {
    for (const Move* move : line->outgoing.all()) {
      // One that goes in slices is expected; its receiver may be through before this arrives.
      if (!move->small() && !std::ranges::count(sliced_, move)) say(What::announce, *move);
    }
  }
}

void Exchange::look() {
  for (Line* line : partners_) {
    culprit_ = line->rank();
    line->look();
    culprit_.reset();
  }
}

// --- receiving ---

bool Exchange::is_over() const noexcept {
  return std::ranges::any_of(lines_->over(), [&](const Line* line) {
    return of_all_ || !line->incoming.empty() || !line->outgoing.empty();
  });
}

// False: nothing has arrived. Does not wait if a rank has hung up.
bool Exchange::hear() {
  return lines_->listen(is_over() ? Deadline::after(Deadline::Seconds{0}) : until(), to_take_);
}

Exchange::Stop Exchange::take_from(Line& line) {
  while (!line.incoming.empty() || !line.outgoing.empty()) {
    unsigned wanted = 0;
    if (!line.outgoing.empty()) wanted |= bit(What::ready);
    if (!line.incoming.empty()) wanted |= kFromSender;
    auto message = line.take(wanted, of_all_);
    if (!message) break;
    Stop stop = on(line, *message);
    if (staying_.empty() || staying_.back().first != &line) line.emptied(*message);
    if (stop) return stop;
  }
  return std::nullopt;
}

Exchange::Stop Exchange::on(Line& line, Message& message) {
  const auto& [label, what, proposes, emptied, length] = message.header;
  Expected& expected = what == What::ready ? line.outgoing : line.incoming;
  const bool known = expected.bring(label);
  const Move& move = (!expected.empty()        ? expected
                      : !line.incoming.empty() ? line.incoming
                                               : line.outgoing)
                         .first();
  Outcome outcome{.rank = line.rank(), .move = &move, .label = label, .nbytes = length};
  if (!known) {
    outcome.news = News::other;
    return outcome;
  }
  line.proposes = proposes != 0;
  switch (what) {
    case What::ready:
      if (length == 0) {
        send_in_slices(move);
        return std::nullopt;
      }
      to_write_.push_back({&line, &move, RemoteMemory::from_bytes(message.payload)});
      break;
    case What::announce:
      if (move.small()) say(What::ready, move);  // for a larger one the sender knows already
      return std::nullopt;
    case What::ask:
      own_receive(move).asked = true;
      say(What::ready, move);
      return std::nullopt;
    case What::done: break;
    case What::data:
      if (!move.small() && move.bytes != nullptr)
        return slice_arrived(line, own_receive(move), message);
      if (length != move.nbytes) {
        outcome.news = News::length;
        return outcome;
      }
      if (move.bytes == nullptr && length > 0) {
        outcome.news = News::payload;
        outcome.payload.assign(message.payload.begin(), message.payload.end());
      } else if (length > 0) {
        store(line, move, message);
      }
  }
  expected.pop();
  --missing_;
  if (outcome.news == News::payload) return outcome;
  return std::nullopt;
}

// Others may wait for room, too: here. False: nothing has arrived.
bool Exchange::await_room() {
  for (Line* line : partners_) line->report();
  if (!staying_.empty()) {
    const Deadline soon = Deadline::after(kPatience);
    if (lines_->listen(soon.at() < until().at() ? soon : until(), to_take_)) return true;
    leave_inboxes();
  }
  return lines_->listen(until(), to_take_);
}

void Exchange::leave_inboxes() {
  for (const auto& [line, message] : staying_) {
    for (Move& move : receives_) {
      if (move.arrived != message.payload.data()) continue;
      std::memcpy(move.bytes, move.arrived, move.nbytes);
      move.arrived = move.bytes;
    }
    line->emptied(message);
  }
  staying_.clear();
  for (Line* line : partners_) line->report();
}

// A message that stays is the last one of this call over its line: later ones are behind it.
void Exchange::store(Line& line, const Move& move, const Message& message) {
  Move& mine = own_receive(move);
  const bool is_last = line.outgoing.empty() && line.incoming.all().size() == 1;
  if (move.may_stay && message.in_inbox && is_last) {
    mine.arrived = message.payload.data();
    staying_.emplace_back(&line, message);
  } else {
    std::memcpy(move.bytes, message.payload.data(), message.payload.size());
  }
}

std::vector<Rank> Exchange::missing() const {
  std::vector<Rank> found;
  for (const Line* line : partners_) {
    if (!line->incoming.empty() || !line->outgoing.empty()) found.push_back(line->rank());
  }
  return found;
}

std::vector<Rank> Exchange::proposers() const {
  std::vector<Rank> found;
  for (const auto& line : lines_->all()) {
    if (line && line->proposes) found.push_back(line->rank());
  }
  return found;
}

Exchange::Stop Exchange::finish() {
  for (Line* line : partners_) {
    while (auto transfer = line->oldest_before_blocks_end()) {
      if (Stop stop = await(*line, transfer)) return stop;
    }
    while (line->checked() && line->oldest()) {
      if (Stop stop = await(*line, line->oldest())) return stop;
    }
  }
  // A small message may have failed: the next one over its line reports it. Its rank may have
  // received it and left: what this call waited for is there.
  return std::nullopt;
}

}  // namespace zerohop::engine::collective
