#include "engine/integrity/check_line.hpp"

#include <algorithm>
#include <array>
#include <cstdio>
#include <utility>

#include "base/error.hpp"

namespace zerohop::engine {
namespace {

constexpr std::size_t kMostAsked = 16;                           // questions in flight; others wait
constexpr std::size_t kMostParts = 64;                           // per question
constexpr std::size_t kMostWireNbytes = std::size_t{256} << 10;  // transfer bytes per question
// Each part ends with a checksum of fewer than kSummedNbytes.
static_assert(kMostParts + kMostSummedAtOnce / kSummedNbytes <= kMaxSums);

std::uint64_t sums_of(std::uint64_t nbytes) { return (nbytes + kSummedNbytes - 1) / kSummedNbytes; }

Failure with_effect(Failure failure, std::uint64_t nbytes) {
  return std::move(failure).with_effect(nbytes > 0 ? Effect::all : Effect::nothing);
}

}  // namespace

std::string checksum_text(std::uint32_t sum) {
  std::array<char, 16> text;
  std::snprintf(text.data(), text.size(), "%08x", sum);
  return text.data();
}

std::shared_ptr<Transfer> CheckLine::put(Call call, std::shared_ptr<const Route> route) {
  auto check = std::make_shared<Check>();
  const std::shared_ptr<Transfer> moved = call.moved;
  if (moved) route = moved->shared_route();
  auto transfer =
      std::make_shared<Transfer>(services_.poller, moved ? moved->nbytes() : 0, std::move(route));
  transfer->note_begun();
  check->call = std::move(call);
  check->transfer = transfer;
  pending_.fetch_add(1);
  {
    const std::lock_guard lock(mutex_);
    check->place = line_.insert(line_.end(), check);
  }
  const auto tell = [self = shared_from_this(), check] { self->on_moved(check); };
  if (moved) {
    moved->on_done(tell);
  } else {
    tell();
  }
  return transfer;
}

// Runs in whatever thread ends the transfer, which may hold locks.
void CheckLine::on_moved(const std::shared_ptr<Check>& check) {
  {
    const std::lock_guard lock(mutex_);
    const Failure* const failure = check->call.moved ? check->call.moved->failure() : nullptr;
    check->moved = true;
    if (failure != nullptr) {
      settle(check, *failure);
    } else if (ended_) {
      settle(check, lost(check->transfer->nbytes() > 0 ? Effect::all : Effect::nothing));
    } else if (check->call.pairs.empty()) {
      settle(check, std::nullopt);
    } else {
      try {
        put_task([self = shared_from_this()] { self->advance(); });
        to_ask_.push_back(check);
      } catch (const std::exception&) {
        settle(check, with_effect(Failure::of_current_exception(), 1));
      }
    }
  }
  retire();
}

// A task: asks one question, then gives other lines their turn.
void CheckLine::advance() noexcept {
  try {
    if (ask_next()) put_task([self = shared_from_this()] { self->advance(); });
  } catch (const std::exception&) {  // out of memory or closing: this line ends, too
    const std::lock_guard lock(mutex_);
    if (to_ask_.empty()) return;
    const std::shared_ptr<Check> check = to_ask_.front();
    to_ask_.pop_front();
    settle(check, with_effect(Failure::of_current_exception(), 1));
  }
  retire();
}

// False: there is nothing to ask for now.
bool CheckLine::ask_next() {
  const auto question = std::make_shared<Question>();
  SumUp asked;
  {
    const std::lock_guard lock(mutex_);
    while (!to_ask_.empty() && (to_ask_.front()->settled || to_ask_.front()->all_asked())) {
      to_ask_.pop_front();
    }
    if (ended_ || to_ask_.empty() || questions_.size() >= kMostAsked) return false;
    question->check = to_ask_.front();
    asked = cut(*question);
    asked.request = ++last_request_;
    questions_.emplace(asked.request, question);
    ++question->check->asked;
    question->check->summing = true;
  }
  services_.ask(std::move(asked));  // the peer computes its sums meanwhile
  Sums sums;
  std::optional<Failure> failure;
  try {
    sums = sums_here(*question);
  } catch (const std::exception&) {
    failure = with_effect(Failure::of_current_exception(), 1);
  }
  const std::lock_guard lock(mutex_);
  question->check->summing = false;
  question->here = std::move(sums);
  if (failure && !question->check->failure) question->check->failure = std::move(failure);
  if (question->there) judge(*question);
  return true;
}

SumUp CheckLine::cut(Question& question) {
  Check& check = *question.check;
  SumUp asked;
  std::uint64_t left = kMostSummedAtOnce;
  std::size_t wire = 0;
  while (left > 0 && question.parts.size() < kMostParts && wire < kMostWireNbytes &&
         check.next_pair < check.call.pairs.size()) {
    const Pair& pair = check.call.pairs[check.next_pair];
    const std::uint64_t nbytes = std::min(pair.here.nbytes - check.next_byte, left);
    question.parts.push_back({check.next_pair, check.next_byte, nbytes});
    asked.parts.push_back({pair.there.to_bytes(), check.next_byte, nbytes});
    wire += asked.parts.back().memory.size();
    left -= nbytes;
    check.next_byte += nbytes;
    if (check.next_byte < pair.here.nbytes) continue;
    ++check.next_pair;
    check.next_byte = 0;
  }
  return asked;
}

CheckLine::Sums CheckLine::sums_here(const Question& question) const {
  Sums all;
  for (const Part& part : question.parts) {
    const Pair& pair = question.check->call.pairs[part.pair];
    const Sums sums = services_.checker->sums_of({pair.here.layout, part.first, part.nbytes},
                                                 pair.registration->device.get());
    all.insert(all.end(), sums.begin(), sums.end());
  }
  return all;
}

void CheckLine::on_answer(const SummedUp& answer) {
  {
    const std::lock_guard lock(mutex_);
    const auto found = questions_.find(answer.request);
    if (found == questions_.end()) return;  // nobody waits any more
    const std::shared_ptr<Question> question = std::move(found->second);
    questions_.erase(found);
    question->there = answer.sums;
    if (answer.status != 0 && !question->check->failure) {
      question->check->failure = with_effect(
          {.kind = Failure::Kind::verbs,
           .message =
               std::string(question->check->call.verb) + " with peer '" + services_.peer +
               "' was carried out, but not compared: the peer sent no checksums: " + answer.refusal,
           .code = static_cast<int>(answer.status)},
          1);
    }
    if (question->here) judge(*question);
    if (!to_ask_.empty()) put_task([self = shared_from_this()] { self->advance(); });
  }
  retire();
}

// Both ends have computed their sums.
void CheckLine::judge(const Question& question) {
  const std::shared_ptr<Check>& check = question.check;
  --check->asked;
  if (!check->failure) check->failure = compare(question);
  if (check->asked == 0 && check->all_asked()) settle(check, std::nullopt);
}

std::optional<Failure> CheckLine::compare(const Question& question) const {
  const Sums& here = *question.here;
  const Sums& there = *question.there;
  if (here.size() != there.size()) {
    return with_effect(
        {.kind = Failure::Kind::protocol,
         .message = "peer '" + services_.peer + "' sent " + std::to_string(there.size()) +
                    " checksums instead of " + std::to_string(here.size()) +
                    ": install the same zerohop on both sides"},
        1);
  }
  std::size_t at = 0;
  for (const Part& part : question.parts) {
    for (std::uint64_t i = 0; i < sums_of(part.nbytes); ++i, ++at) {
      if (here[at] == there[at]) continue;
      const std::uint64_t first = i * kSummedNbytes;
      const Part range{part.pair, part.first + first, std::min(kSummedNbytes, part.nbytes - first)};
      return mismatch(question, range, here[at], there[at]);
    }
  }
  return std::nullopt;
}

Failure CheckLine::mismatch(const Question& question, const Part& range, std::uint32_t here,
                            std::uint32_t there) const {
  const Check& check = *question.check;
  const bool several = check.call.pairs.size() > 1;
  const Route& route = check.transfer->route();
  Failure failure{
      .kind = Failure::Kind::integrity,
      .message = std::string(check.call.verb) + " with peer '" + services_.peer + "' by " +
                 route.kind + " (" + route.device + ") delivered wrong data: " +
                 (several ? "of pair " + std::to_string(range.pair) + " " : "") + "bytes " +
                 std::to_string(range.first) + " to " +
                 std::to_string(range.first + range.nbytes - 1) + " have CRC32C " +
                 checksum_text(here) + " here and " + checksum_text(there) +
                 " there: transfer them again, leave both arrays alone until the Transfer is done, "
                 "and have `zerohop verify` test the memory and the route if it happens again"};
  failure.offset = range.first;
  failure.nbytes = range.nbytes;
  return with_effect(std::move(failure), 1);
}

// An earlier failure of the check stands.
void CheckLine::settle(const std::shared_ptr<Check>& check, std::optional<Failure> failure) {
  if (check->settled) return;
  if (failure && !check->failure) check->failure = std::move(failure);
  check->settled = true;
  end_if_settled(check);
  if (check->failure && !ended_) withhold_behind(*check);  // all fail where the peer is lost
}

// Withholds all notifications requested after the failed transfer.
void CheckLine::withhold_behind(const Check& failed) {
  for (auto later = std::next(failed.place); later != line_.end(); ++later) {
    Check& each = **later;
    if (!each.notifies()) continue;
    each.withheld = failed.failure;
    each.withheld->explain("; the notification behind it was withheld");
    each.withheld->set_effect(each.transfer->nbytes() > 0 ? Effect::all : Effect::nothing);
    end_if_settled(*later);
  }
}

void CheckLine::end_if_settled(const std::shared_ptr<Check>& check) {
  if (!check->settled || check->notifies() || check->ended) return;
  ended_checks_.push_back(check);
  check->ended = true;
}

// Ends the checks that have a result; sends notifications in the order of the calls.
void CheckLine::retire() {
  std::vector<std::shared_ptr<Check>> done;
  {
    const std::lock_guard lock(mutex_);
    for (const auto& check : ended_checks_) line_.erase(check->place);
    done = std::exchange(ended_checks_, {});
    notify_those_in_turn();
    done.insert(done.end(), ended_checks_.begin(), ended_checks_.end());
    ended_checks_.clear();
  }
  for (const auto& check : done) finish(check);
}

// A call in a stream follows earlier calls of that stream and those without a stream; one without a
// stream follows all.
void CheckLine::notify_those_in_turn() {
  std::vector<driver::CudaStream> busy;  // with an earlier call
  for (auto place = line_.begin(); place != line_.end();) {
    const std::shared_ptr<Check> check = *place;
    const auto& stream = check->call.stream;
    const bool has_turn = stream ? std::ranges::find(busy, *stream) == busy.end() : busy.empty();
    if (!check->settled || !has_turn) {
      if (!stream) return;
      if (has_turn) busy.push_back(*stream);
      ++place;
      continue;
    }
    place = line_.erase(place);
    try {
      put_task([self = shared_from_this(), check] { self->notify(check); });
    } catch (const std::exception&) {
      check->failure = with_effect(Failure::of_current_exception(), check->transfer->nbytes());
      ended_checks_.push_back(check);  // removed from the line
    }
  }
}

// A task.
void CheckLine::notify(const std::shared_ptr<Check>& check) noexcept {
  const std::uint64_t nbytes = check->transfer->nbytes();
  try {
    const std::shared_ptr<Transfer> out = check->call.notify();
    out->on_done([self = shared_from_this(), check, out, nbytes] {
      if (const Failure* failure = out->failure()) check->failure = with_effect(*failure, nbytes);
      self->finish(check);
    });
  } catch (const std::exception&) {
    check->failure = with_effect(Failure::of_current_exception(), nbytes);
    finish(check);
  }
}

void CheckLine::finish(const std::shared_ptr<Check>& check) noexcept {
  {
    Call kept;  // destroyed without the lock: dropping an array may run code of the program
    const std::lock_guard lock(mutex_);
    if (check->failure) {
      check->transfer->fail(*check->failure);
    } else if (check->withheld) {
      check->transfer->fail(*check->withheld);
    }
    // Release before ending the Transfer: a waiter may rely on its memory being released.
    if (!check->summing) kept = std::exchange(check->call, {});
  }
  pending_.fetch_sub(1);  // before it is done: a caller that sees it done finds nothing pending
  check->transfer->drop();
}

void CheckLine::end() {
  std::string why = services_.why_lost();  // takes a lock that comes before this one
  {
    const std::lock_guard lock(mutex_);
    ended_ = true;
    why_lost_ = std::move(why);
    to_ask_.clear();
    questions_.clear();
    for (const auto& check : line_) {  // the others fail once it is known what has been moved
      if (!check->moved || check->ended) continue;
      // An earlier failure stands, though questions remain that nobody will answer.
      if (!check->failure) {
        check->failure = lost(check->transfer->nbytes() > 0 ? Effect::all : Effect::nothing);
      }
      check->settled = true;
      end_if_settled(check);
    }
  }
  retire();
}

Failure CheckLine::lost(Effect effect) const {
  return Failure{.kind = Failure::Kind::peer_lost, .message = why_lost_}.with_effect(effect);
}

}  // namespace zerohop::engine
