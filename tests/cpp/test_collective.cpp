// The parts of collectives, between two ranks: the call log, the barrier's steps, and exchanges,
// which stop for whatever they cannot handle.
#include <doctest/doctest.h>

#include <algorithm>
#include <array>
#include <deque>
#include <memory>
#include <random>
#include <span>
#include <vector>

#include "collective_lines.hpp"
#include "engine/collective/barrier.hpp"
#include "engine/collective/exchange.hpp"

namespace zerohop::engine::collective {
namespace {

using testing::Couple;
using testing::kMessages;
using testing::lines_of;
using testing::soon;

constexpr Deadline::Seconds kSoon{testing::kTimeout};
constexpr Deadline::Seconds kAtOnce{0};

struct Log {
  std::vector<std::byte> memory = std::vector<std::byte>(CallLog::kRecords * sizeof(CallRecord));
  std::shared_ptr<CallLog> log = std::make_shared<CallLog>(memory, nullptr);
};

TEST_CASE("the log distinguishes equal calls from others, and skips records being written") {
  Log first, second;
  const Call barrier{.kind = Kind::barrier};
  CHECK(first.log->add(barrier).digest == second.log->add(barrier).digest);
  const Call call{.kind = Kind::broadcast, .unused = {}, .root = 1, .nbytes = 8, .dtype = {}};
  CHECK(first.log->add(call).digest != second.log->add({.kind = Kind::gather}).digest);
  CHECK(first.log->add(call).digest != second.log->add(call).digest);  // for good
  CHECK(first.log->add(call).number == 3);
  CHECK(first.log->add(barrier).number == 2);
  CHECK(first.log->read().size() == 5);
  first.memory[2 * sizeof(CallRecord) + 3] ^= std::byte{1};
  CHECK(first.log->read().size() == 4);
  for (std::size_t more = 0; more < 2 * CallLog::kRecords; ++more) first.log->add(call);
  CHECK(first.log->read().size() == CallLog::kRecords);
}

// Two ranks in one thread: each does what it can at once.
struct Pair : Couple {
  static constexpr std::uint32_t kFirst = 100, kBell = 99;

  std::shared_ptr<Endpoint> hold(Endpoint& endpoint) {
    return {std::shared_ptr<void>(), &endpoint};
  }
};

TEST_CASE_FIXTURE(Pair, "a barrier ends when both have come, and stops for what is new") {
  const auto make = [&](Endpoint& endpoint, Rank rank, const Log& log) {
    return Barrier(hold(endpoint), log.log,
                   {.rank = rank, .size = 2, .first_slot = kFirst, .bell = kBell});
  };
  Log log, other;
  Barrier first = make(left, 0, log), second = make(right, 1, other);
  const auto run = [](Barrier& barrier, Deadline::Seconds seconds) {
    barrier.begin();
    return barrier.run(true, Deadline::after(seconds));
  };
  CHECK(run(first, kAtOnce).news == Barrier::News::unknown);
  first.connect(1, to_right, kFirst);
  second.connect(0, to_left, kFirst);
  CHECK(run(first, kAtOnce).news == Barrier::News::quiet);
  CHECK(first.missing() == std::vector<Rank>{1});
  CHECK(first.unreported().empty());
  CHECK(second.unreported() == std::vector{std::pair{Rank{0}, std::uint32_t{0}}});
  for (int round = 0; round < 3; ++round) {
    CHECK(run(second, kSoon).news == Barrier::News::through);  // one may be ahead of the other
    CHECK(run(first, kSoon).news == Barrier::News::through);
    CHECK(run(first, kAtOnce).news == Barrier::News::quiet);
  }
  other.log->add({.kind = Kind::gather});
  const std::uint32_t slot = kFirst + Barrier::kSteps;
  right.wait_notify(slot, 1, false, soon());
  right.notify({slot, Barrier::kLost + 7});  // as if the first one had sent that instead
  const auto reply = run(second, kSoon);
  CHECK(reply.news == Barrier::News::reported);
  CHECK(reply.rank == 7);
  CHECK(run(first, kSoon).news == Barrier::News::different);
}

TEST_CASE_FIXTURE(Pair, "a barrier loses nothing of what has come beside bad news") {
  Log log;
  Barrier barrier(hold(right), log.log,
                  {.rank = 1, .size = 4, .first_slot = kFirst, .bell = kBell});
  for (const Rank rank : {0, 2, 3}) barrier.connect(rank, to_left, kFirst);
  right.notify({kFirst, Barrier::kLost + 7});
  right.notify({kFirst + 1, Barrier::kArrived});
  right.notify({kFirst + 2, Barrier::kArrived});
  barrier.begin();
  const auto reply = barrier.run(true, soon());
  CHECK(reply.news == Barrier::News::reported);
  CHECK(reply.rank == 7);
  CHECK(barrier.missing() == std::vector<Rank>{0});
  right.notify({kFirst, Barrier::kArrived});
  CHECK(barrier.run(true, soon()).news == Barrier::News::through);
}

TEST_CASE_FIXTURE(Pair, "notifications that have come are taken together, and no others") {
  std::vector<Endpoint::Notified> taken{{1, 1}};
  CHECK_THROWS_AS(right.wait_notifies(3, 4, taken, Deadline::after(kAtOnce)), TransferTimeout);
  for (const std::uint32_t slot : {2, 3, 5, 6, 7}) right.notify({slot, 10 + slot});
  right.wait_notifies(3, 4, taken, soon());
  CHECK(taken == std::vector<Endpoint::Notified>{{3, 13}, {5, 15}, {6, 16}});
  for (const std::uint32_t slot : {3, 5, 6}) CHECK(right.peek_notify(slot) == 0);
  for (const std::uint32_t slot : {2, 7}) CHECK(right.peek_notify(slot) == 10 + slot);
}

struct Begun : Exchange {
  Begun(std::shared_ptr<Lines> lines, std::vector<Move> sends, std::vector<Move> receives,
        bool of_all)
      : Exchange(std::move(lines)) {
    begin(sends, receives, of_all);
  }
};

struct Exchanged : Pair {
  std::shared_ptr<Lines> lines = lines_of(left, 0, to_right);
  std::shared_ptr<Lines> others = lines_of(right, 1, to_left);
  std::array<std::byte, 64> source{}, target{};

  Exchanged() {
    source.fill(std::byte{7});
    lines->at(1).meet(others->at(0).inbox().remote(), false, false);
    others->at(0).meet(lines->at(1).inbox().remote(), false, false);
  }
  Move move(Rank rank, std::array<std::byte, 64>& bytes, std::uint64_t number = 1) {
    Move made;
    made.rank = rank;
    made.bytes = bytes.data();
    made.nbytes = bytes.size();
    made.label.kind = Kind::send_recv;
    made.label.number = number;
    made.label.nbytes = bytes.size();
    return made;
  }
  void completes(const std::shared_ptr<Lines>& own, std::vector<Move> sends,
                 std::vector<Move> receives) {
    Begun all(own, std::move(sends), std::move(receives), false);
    REQUIRE(run(all, kSoon).news == Exchange::News::complete);
  }
  static Exchange::Outcome run(Exchange& exchange, Deadline::Seconds seconds) {
    return exchange.run(seconds, Deadline::after(seconds));
  }
};

TEST_CASE_FIXTURE(Exchanged,
                  "what belongs to another call stops it, and a rank that is silent, too") {
  Begun waiting(others, {}, {move(0, target)}, false);
  CHECK(run(waiting, kAtOnce).news == Exchange::News::quiet);
  CHECK(waiting.missing() == std::vector<Rank>{0});
  completes(lines, {move(1, source, 2)}, {});
  const auto found = run(waiting, kSoon);
  CHECK(found.news == Exchange::News::other);
  CHECK(found.label.number == 2);
  CHECK(found.move->label.number == 1);
  CHECK(target != source);
}

TEST_CASE_FIXTURE(
    Exchanged, "a sender that has filled the inbox waits for room, and misses nothing meanwhile") {
  for (std::uint64_t number = 1; number <= kMostMessages; ++number) {
    completes(lines, {move(1, source, number)}, {});
  }
  completes(others, {move(0, source)}, {});
  Begun both(lines, {move(1, source, kMostMessages + 1)}, {move(1, target)}, false);
  for (int look = 0; look < 100 && target != source; ++look)
    CHECK(run(both, Deadline::Seconds{0.01}).news == Exchange::News::full);
  for (std::uint64_t number = 1; number <= kMostMessages; ++number) {
    completes(others, {}, {move(0, target, number)});
  }
  CHECK(run(both, kSoon).news == Exchange::News::complete);
  CHECK(others->at(0).untaken().empty());
}

TEST_CASE_FIXTURE(Exchanged, "a message reports room, whether or not it is consumed") {
  for (std::uint64_t number = 1; number <= kMostMessages; ++number) {
    completes(lines, {move(1, source, number)}, {});
  }
  Begun one_more(lines, {move(1, source, kMostMessages + 1)}, {}, false);
  CHECK(run(one_more, kAtOnce).news == Exchange::News::full);
  completes(others, {move(0, source)}, {move(0, target)});
  // It was sent before the other was consumed.
  CHECK(run(one_more, Deadline::Seconds{0.05}).news == Exchange::News::full);
  completes(others, {move(0, source, 2)}, {});
  CHECK(run(one_more, kSoon).news == Exchange::News::complete);
  CHECK(lines->at(1).untaken().size() == 2);
}

TEST_CASE_FIXTURE(Exchanged, "messages both ways need no notification of room within a lap") {
  for (std::uint64_t number = 1; number < kMostMessages; ++number) {
    completes(lines, {move(1, source, number)}, {});
    completes(others, {move(0, source, number)}, {move(0, target, number)});
    completes(lines, {}, {move(1, target, number)});
  }
  CHECK(left.peek_notify(kMessages + 2 + 1) == 0);
  CHECK(right.peek_notify(kMessages + 2) == 0);
}

TEST_CASE_FIXTURE(Exchanged, "a block may stay in the inbox until its exchange ends") {
  const auto staying = [&](std::uint64_t number) {
    Move made = move(0, target, number);
    made.may_stay = true;
    return made;
  };
  const auto in_inbox = [&](const Move& taken) {
    const auto inbox = others->at(0).inbox().layout();
    const auto at = reinterpret_cast<std::uint64_t>(taken.arrived);
    return at >= inbox.address && at < inbox.address + inbox.nbytes();
  };
  completes(lines, {move(1, source), move(1, source, 2)}, {});
  Begun receiving(others, {}, {staying(1), staying(2)}, false);
  REQUIRE(run(receiving, kSoon).news == Exchange::News::complete);
  // Nothing may be behind one that stays.
  CHECK(receiving.receives()[0].arrived == target.data());
  CHECK(target == source);
  const Move& last = receiving.receives()[1];
  REQUIRE(in_inbox(last));
  CHECK(std::equal(source.begin(), source.end(), last.arrived));
  CHECK(others->at(0).untaken().size() == 1);
  receiving.end();
  CHECK(others->at(0).untaken().empty());
}

TEST_CASE_FIXTURE(Exchanged, "a rank that waits for room leaves it to others") {
  for (std::uint64_t number = 1; number <= kMostMessages; ++number) {
    completes(others, {move(0, source, number)}, {});
  }
  completes(lines, {move(1, source), move(1, source, 2)}, {});
  Move taken = move(0, target, 2);
  taken.may_stay = true;
  std::array<std::byte, 64> first{};
  Begun waiting(others, {move(0, source, kMostMessages + 1)}, {move(0, first), taken}, false);
  CHECK(run(waiting, Deadline::Seconds{0.05}).news == Exchange::News::full);
  CHECK(others->at(0).untaken().empty());
  CHECK(waiting.receives()[1].arrived == target.data());
  CHECK(target == source);
  CHECK(left.peek_notify(kMessages + 2 + 1) != 0);  // both are reported at once
  for (std::uint64_t number = 1; number <= kMostMessages + 1; ++number) {
    completes(lines, {}, {move(1, target, number)});
    if (number == kMostMessages) CHECK(run(waiting, kSoon).news == Exchange::News::complete);
  }
}

TEST_CASE("one of the longest messages fits behind another one, whatever came before") {
  for (std::size_t small = 0; small <= 3 * kMostMessages; ++small) {
    for (const std::size_t length : {std::size_t{0}, std::size_t{40}, kSmall, 5 * kSmall}) {
      Room room;
      for (std::size_t number = 0; number < small; ++number) {
        room.put(length);
        room.free(1);
      }
      room.put(kEager);
      CHECK(room.fits(kEager));
    }
  }
}

TEST_CASE("no message is put over one that nobody has taken, and an empty inbox takes any") {
  std::mt19937 random(7);
  struct Span {
    std::size_t begin, end;
  };
  Room room;
  std::deque<Span> untaken;
  for (int step = 0; step < 20000; ++step) {
    const std::size_t most = step % 3 == 0 ? kEager : 300;
    const std::size_t length = random() % (most + 1);
    if (room.fits(length)) {
      const Span span{room.next(), room.next() + room_of(length)};
      CHECK(span.end <= kInbox);
      CHECK(std::ranges::all_of(untaken, [&](const Span& other) {
        return span.end <= other.begin || other.end <= span.begin;
      }));
      untaken.push_back(span);
      room.put(length);
    }
    CHECK(untaken.size() <= kMostMessages);
    const std::size_t taken = random() % 4 == 0 ? random() % (untaken.size() + 1) : 0;
    room.free(taken);
    untaken.erase(untaken.begin(), untaken.begin() + static_cast<std::ptrdiff_t>(taken));
    if (untaken.empty()) CHECK(room.fits(kEager));
  }
}

TEST_CASE_FIXTURE(Exchanged, "messages of any length arrive, however far ahead their sender is") {
  std::mt19937 random(7);
  std::vector<std::byte> out(kEager), in(kEager);
  std::deque<Move> under_way;
  const auto move_of = [&](Rank rank, std::vector<std::byte>& bytes, std::uint64_t number,
                           std::size_t nbytes) {
    Move made = move(rank, source, number);
    made.bytes = bytes.data();
    made.nbytes = made.label.nbytes = nbytes;
    return made;
  };
  const auto take_one = [&] {
    Move next = under_way.front();
    under_way.pop_front();
    completes(others, {}, {next});
    const auto value = static_cast<std::byte>(next.label.number);
    CHECK(std::ranges::count(std::span(in).first(next.nbytes), value) ==
          static_cast<std::ptrdiff_t>(next.nbytes));
  };
  std::size_t furthest = 0;
  for (std::uint64_t number = 1; number <= 2000; ++number) {
    const std::size_t nbytes = random() % (number % 5 == 0 ? kEager : 100) + 1;
    std::fill_n(out.begin(), nbytes, static_cast<std::byte>(number));
    Begun sending(lines, {move_of(1, out, number, nbytes)}, {}, false);
    for (;;) {
      const auto news = run(sending, kAtOnce).news;
      if (news == Exchange::News::complete) break;
      // All may have been taken, with the room for it not yet returned.
      if (news == Exchange::News::full && !under_way.empty()) take_one();
    }
    under_way.push_back(move_of(0, in, number, nbytes));
    furthest = std::max(furthest, under_way.size());
    if (random() % 50 == 0) {
      while (!under_way.empty()) take_one();
    }
  }
  CHECK(furthest > 8);
}

TEST_CASE_FIXTURE(Exchanged,
                  "a rank that hangs up ends the wait of the others, after what has arrived") {
  completes(lines, {move(1, source)}, {});
  lines->at(1).ring_off(soon());
  Begun receiving(others, {}, {move(0, target), move(0, target, 2)}, false);
  CHECK(run(receiving, kSoon).news == Exchange::News::quiet);  // at once
  CHECK(target == source);
  CHECK(others->at(0).is_over());
}

}  // namespace
}  // namespace zerohop::engine::collective
