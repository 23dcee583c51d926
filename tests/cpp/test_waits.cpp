// Who waits for what, and who polls: waits without a thread, the progress thread, threads that
// share a core, and look-ups of names.
#include <doctest/doctest.h>
#include <pthread.h>
#include <sched.h>

#include <atomic>
#include <chrono>
#include <cstdint>
#include <memory>
#include <thread>
#include <vector>

#include "base/spin_wait.hpp"
#include "couple.hpp"
#include "engine/control/link.hpp"
#include "engine/control/wanted_names.hpp"
#include "engine/core/device_choice.hpp"
#include "engine/done.hpp"
#include "engine/notify/board.hpp"
#include "engine/path/verbs/matcher.hpp"
#include "engine/path/verbs/send_queue.hpp"
#include "engine/wait/async_waits.hpp"
#include "engine/wait/poller.hpp"

namespace zerohop::testing {
namespace {

using namespace engine;
using namespace std::chrono_literals;
using zerohop::SpinWait;

// --- waits without a thread ---

class Waits {
 public:
  std::shared_ptr<Board> board = std::make_shared<Board>();
  AsyncWaits all{board};
  std::vector<int> reported;

  AsyncWaits::Begun slots(std::uint32_t first, std::uint32_t count, int name) {
    return all.await_slots(first, count, [this, name] { reported.push_back(name); });
  }
  AsyncWaits::Begun peer(int name) {
    return all.await_peer([this, name] { reported.push_back(name); });
  }
  std::vector<int> put(std::uint32_t slot) {
    board->put(slot, 1);
    return look();
  }
  std::vector<int> look() {
    all.look();
    return std::exchange(reported, {});
  }
};

using Names = std::vector<int>;

TEST_CASE("a put wakes the waits whose range has the slot, once") {
  Waits waits;
  waits.slots(5, 1, 1);
  waits.slots(4, 3, 2);
  waits.slots(6, 1, 3);
  waits.slots(0, Board::kSlots, 4);
  waits.slots(6, 1000, 5);
  CHECK(waits.put(3) == Names{4});
  CHECK(waits.put(5) == Names{1, 2});
  CHECK(waits.put(5) == Names{});
  CHECK(waits.put(1005) == Names{5});
  CHECK(waits.put(6) == Names{3});
  CHECK(waits.board->sleepers().load() == 0);
}

TEST_CASE("a GPU's note that a value has replaced wakes nobody") {
  Waits waits;
  waits.board->pages().notes[5].store(gpu::make_note(3, 77));
  waits.board->put(5, 1);
  CHECK(waits.board->reset(5) == 1);
  waits.slots(5, 1, 1);
  CHECK(waits.reported.empty());
  CHECK(waits.put(5) == Names{1});
}

TEST_CASE("more puts than the board keeps the order of") {
  Waits waits;
  waits.slots(1, 1, 1);
  waits.slots(700, 5, 2);
  waits.slots(9000, 1, 3);
  waits.board->put(1, 1);
  for (std::uint32_t slot = 100; slot < 100 + 2 * BoardPages::kRecent; ++slot) {
    waits.board->put(slot, 1);
  }
  waits.board->put(702, 1);
  CHECK(waits.look() == Names{1, 2});
  CHECK(waits.put(9000) == Names{3});
}

TEST_CASE("a put that names no slot has all be looked at") {
  Waits waits;
  waits.slots(5, 1, 1);
  waits.board->pages().slots[5].store(1);  // as the adapter of a kernel does
  CHECK(waits.look() == Names{});
  waits.board->pages().announce();
  CHECK(waits.look() == Names{1});
}

TEST_CASE("silent puts are polled for while there are silent writers") {
  Waits waits;
  waits.slots(5, 1, 1);
  waits.board->pages().slots[5].store(1);
  CHECK(waits.all.look_for_gpus() > std::chrono::milliseconds(500));
  CHECK(waits.reported == Names{});
  waits.board->pages().kernels.fetch_add(1);
  CHECK(waits.all.look_for_gpus() <= std::chrono::milliseconds(1));
  CHECK(waits.reported == Names{1});
}

TEST_CASE("one sleeper is counted while anybody waits for a slot") {
  Waits waits;
  CHECK_FALSE(waits.peer(1).first);
  CHECK(waits.board->sleepers().load() == 0);
  CHECK(waits.slots(5, 1, 2).first);
  const auto other = waits.slots(6, 1, 3);
  CHECK_FALSE(other.first);
  CHECK(waits.board->sleepers().load() == 1);
  waits.put(5);
  CHECK(waits.board->sleepers().load() == 1);
  waits.all.forget(other.id);
  CHECK(waits.board->sleepers().load() == 0);
  CHECK(waits.slots(7, 1, 4).first);
}

TEST_CASE("the ends of all waits") {
  Waits waits;
  waits.slots(5, 1, 1);
  waits.peer(2);
  waits.all.tell_slots();
  CHECK(std::exchange(waits.reported, {}) == Names{1});
  waits.all.tell_peers();
  CHECK(std::exchange(waits.reported, {}) == Names{2});
  waits.peer(3);
  waits.slots(5, 1, 4);
  waits.all.tell_all();
  CHECK(waits.reported == Names{4, 3});
}

TEST_CASE("Done wakes each waiter once, also one that comes after the end") {
  Done done;
  int reported = 0;
  done.on_set([&] { ++reported; });
  done.on_set([&] { ++reported; });
  done.forget(done.on_set([&] { reported += 100; }));
  CHECK_FALSE(done.is());
  done.set();
  CHECK(done.is());
  CHECK(reported == 2);
  done.on_set([&] { ++reported; });
  CHECK(reported == 3);
}

// --- when the progress thread polls operations that others have in progress ---

struct Counted : engine::Poller::Source {
  std::atomic<int> polls{0};
  bool pending() const noexcept override { return true; }
  void poll() noexcept override { ++polls; }
};

TEST_CASE("the progress thread keeps out of the way of work that is begun one after the other") {
  const auto sleepers = std::make_shared<std::atomic<int>>(0);
  engine::Poller poller({engine::open_device("soft0")}, std::chrono::microseconds(200), nullptr,
                        sleepers);
  const auto source = std::make_shared<Counted>();
  poller.add(source);
  (void)poller.serve();
  CHECK(source->polls == 1);
  poller.note_begun();
  CHECK(poller.serve() == std::chrono::milliseconds(0));
  CHECK(source->polls == 1);
  CHECK(poller.looks());  // polls again, by itself
  (void)poller.serve();   // none was begun meanwhile
  CHECK(source->polls == 2);
  poller.note_begun();
  *sleepers = 1;  // relies on the progress thread
  (void)poller.serve();
  CHECK(source->polls == 3);
}

TEST_CASE("while callers poll it is known that the progress thread looks within a millisecond") {
  engine::Poller poller({engine::open_device("soft0")}, std::chrono::microseconds(200), nullptr);
  CHECK_FALSE(poller.looks_soon());
  int looks = 0;
  REQUIRE(poller.wait([&] { return ++looks > 3; }, soon()));
  CHECK(poller.serve() == std::chrono::milliseconds(1));
  CHECK_FALSE(poller.looks());
  CHECK(poller.looks_soon());
  (void)poller.serve();  // nothing is pending, and nobody has polled since
  CHECK_FALSE(poller.looks_soon());
}

// --- SpinWait ---

// Binds the calling thread alone, to the first core that it may use.
void share_one_core() {
  cpu_set_t allowed;
  CPU_ZERO(&allowed);
  REQUIRE(::pthread_getaffinity_np(::pthread_self(), sizeof allowed, &allowed) == 0);
  int first = 0;
  while (!CPU_ISSET(first, &allowed)) ++first;
  CPU_ZERO(&allowed);
  CPU_SET(first, &allowed);
  REQUIRE(::pthread_setaffinity_np(::pthread_self(), sizeof allowed, &allowed) == 0);
}

// Takes the turns of that parity; returns how many looks were too early.
std::uint64_t take_turns(std::atomic<std::uint32_t>& turn, std::uint32_t parity,
                         std::uint32_t rounds) {
  share_one_core();
  std::uint64_t vain = 0;
  SpinWait::Learned learned;
  for (std::uint32_t mine = parity; mine < 2 * rounds; mine += 2) {
    SpinWait wait(SpinWait::Clock::duration::max(), SpinWait::Clock::time_point::max(), &learned);
    for (; turn.load(std::memory_order_acquire) != mine; wait.pause()) ++vain;
    turn.store(mine + 1, std::memory_order_release);
  }
  return vain;
}

TEST_CASE("a wait ends when its thread has had the core for that long") {
  SpinWait wait(1ms);
  std::uint64_t looks = 1;
  while (wait.pause()) ++looks;
  CHECK(looks > 1);
}

TEST_CASE("a wait without any time ends at its first look at the clock") {
  SpinWait wait(0ms);
  std::uint64_t looks = 1;
  while (wait.pause()) ++looks;
  CHECK(looks <= 8);
}

TEST_CASE("a wait ends no later than its last moment") {
  const auto last = SpinWait::Clock::now() + 2ms;
  SpinWait wait(SpinWait::Clock::duration::max(), last);
  std::uint64_t looks = 1;
  while (wait.pause()) ++looks;
  CHECK(looks > 1);
}

// Without giving way each turn would take a whole time slice: a hundred thousand looks.
TEST_CASE("two threads of one core that wait for each other take turns within a few looks") {
  constexpr std::uint32_t kRounds = 2000;
  std::atomic<std::uint32_t> turn{0};
  std::uint64_t others = 0;
  std::thread other([&] { others = take_turns(turn, 1, kRounds); });
  std::uint64_t own = 0;
  std::thread first([&] { own = take_turns(turn, 0, kRounds); });
  first.join();
  other.join();
  CHECK((own + others) / (2 * kRounds) < 1000);
}

// --- look-ups that wait for a name to be shared ---

TEST_CASE("a peer that asked for a name is found by it, once") {
  WantedNames names;
  Link one, other;
  names.add(one, 1, "a");
  names.add(one, 2, "b");
  names.add(other, 1, "a");
  CHECK(names.take("a").size() == 2);
  CHECK(names.take("a").empty());
  const auto left = names.take("b");
  REQUIRE(left.size() == 1);
  CHECK(left.front().link == &one);
  CHECK(left.front().request == 2);
  CHECK(names.size() == 0);
}

TEST_CASE("the oldest look-up of a link makes room for the newest, and not another link's") {
  WantedNames names;
  Link one, other;
  names.add(other, 1, "other");
  names.add(one, 1, "first");
  for (std::uint64_t request = 2; request < 2 + WantedNames::kMost; ++request) {
    names.add(one, request, "many");
  }
  CHECK(names.size() == 1 + WantedNames::kMost);
  CHECK(names.take("first").empty());
  CHECK(names.take("other").size() == 1);
  CHECK(names.take("many").size() == WantedNames::kMost);
}

TEST_CASE("a link that goes wants nothing more") {
  WantedNames names;
  Link one, other;
  names.add(one, 1, "a");
  names.add(other, 2, "a");
  names.forget(one);
  CHECK(names.take("a").size() == 1);
  CHECK(names.size() == 0);
}

// --- messages, notifications and posted chains by themselves ---

Arrived eager(std::uint64_t tag, std::size_t nbytes) {
  return {.message = {.kind = MessageKind::eager, .tag = tag, .nbytes = nbytes},
          .payload = std::vector<std::byte>(nbytes)};
}

TEST_CASE("offers die with their queue pair, eager messages stay") {
  Matcher matcher;
  matcher.add(eager(1, 100));
  matcher.add(Arrived{.message = {.kind = MessageKind::offer, .tag = 1, .nbytes = 1u << 20},
                      .payload = {}});
  matcher.add(Arrived{.message = {.kind = MessageKind::offer, .tag = 2, .nbytes = 1u << 20},
                      .payload = {}});
  CHECK(matcher.waiting_nbytes() == 100 + 3 * sizeof(Arrived));
  matcher.drop_offers(/*rail=*/0);
  CHECK(matcher.waiting_nbytes() == 100 + sizeof(Arrived));
  CHECK(matcher.find_arrived(1).has_value());
  CHECK_FALSE(matcher.find_arrived(1).has_value());
  CHECK_FALSE(matcher.find_arrived(2).has_value());
}

TEST_CASE("a context ends with what waits in it, and no other") {
  constexpr Context kContext = 3;
  constexpr std::uint64_t kTag = (std::uint64_t{kContext} << 32) + 1;
  Matcher matcher;
  matcher.add(eager(1, 100));
  matcher.add(eager(kTag, 50));
  matcher.add(eager(kTag + 1, 50));
  matcher.add(PostedReceive{.tag = 2, .into = {}, .transfer = nullptr});
  matcher.add(PostedReceive{.tag = kTag + 2, .into = {}, .transfer = nullptr});
  const Matcher::Waiting waiting = matcher.end(kContext);
  CHECK(waiting.arrived.size() == 2);
  CHECK(waiting.receives.size() == 1);
  CHECK(waiting.receives.front().tag == kTag + 2);
  CHECK(matcher.waiting_nbytes() == 100 + sizeof(Arrived));
  CHECK(matcher.has_ended(kContext));
  CHECK_FALSE(matcher.has_ended(0));
  CHECK(matcher.find_receive(2).has_value());
  CHECK(matcher.find_arrived(1).has_value());
}

TEST_CASE("any number of ended contexts takes a few ranges") {
  EndedContexts ended;
  for (const Context context : {9U, 2U, 4U, 3U, 3U, 0U, ~0U}) ended.add(context);
  CHECK(ended.range_count() == 4);
  for (const Context context : {0U, 2U, 3U, 4U, 9U, ~0U}) CHECK(ended.has(context));
  for (const Context context : {1U, 5U, 8U, 10U, ~0U - 1}) CHECK_FALSE(ended.has(context));
  for (Context context = 1000; context > 0; --context) ended.add(context);
  CHECK(ended.range_count() == 2);
}

TEST_CASE("a board slot is taken once") {
  Board board;
  CHECK_FALSE(board.find(0, Board::kSlots, true).has_value());
  board.put(9, 5);
  board.put(7, 4);
  CHECK(board.puts() == 2);
  CHECK(board.peek(9) == 5);
  CHECK(board.find(0, 10, false) == std::pair<std::uint32_t, std::uint32_t>{7, 4});
  CHECK(board.find(0, 10, true) == std::pair<std::uint32_t, std::uint32_t>{7, 4});
  CHECK(board.find(0, 10, true) == std::pair<std::uint32_t, std::uint32_t>{9, 5});
  CHECK(board.reset(9) == 0);
}

TEST_CASE("one completion retires all chains before it") {
  SendQueue queue(8);
  for (int i = 0; i < 3; ++i) queue.push({.transfer = nullptr, .requests = 2});
  CHECK(queue.room() == 2);
  PostedChain chain;
  std::uint64_t ticket = 0;
  int popped = 0;
  while (queue.pop_until(1, chain, ticket)) ++popped;
  CHECK(popped == 2);
  CHECK(ticket == 1);
  CHECK(queue.room() == 6);
  CHECK_FALSE(queue.empty());
}

}  // namespace
}  // namespace zerohop::testing
