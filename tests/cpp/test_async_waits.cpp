// Waits without a thread: which ones a put wakes, what happens once the board has forgotten the
// order of puts, and which ones count as sleepers.
#include <doctest/doctest.h>

#include <cstdint>
#include <memory>
#include <vector>

#include "engine/done.hpp"
#include "engine/wait/async_waits.hpp"

namespace zerohop::testing {
namespace {

using namespace zerohop::engine;

class Waits {
 public:
  std::shared_ptr<Board> board = std::make_shared<Board>();
  AsyncWaits all{board};
  std::vector<int> told;

  AsyncWaits::Begun slots(std::uint32_t first, std::uint32_t count, int name) {
    return all.await_slots(first, count, [this, name] { told.push_back(name); });
  }
  AsyncWaits::Begun peer(int name) {
    return all.await_peer([this, name] { told.push_back(name); });
  }
  std::vector<int> put(std::uint32_t slot) {
    board->put(slot, 1);
    return look();
  }
  std::vector<int> look() {
    all.look();
    return std::exchange(told, {});
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
  CHECK(waits.told.empty());
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
  CHECK(waits.told == Names{});
  waits.board->pages().kernels.fetch_add(1);
  CHECK(waits.all.look_for_gpus() <= std::chrono::milliseconds(1));
  CHECK(waits.told == Names{1});
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
  waits.all.leave(other.id);
  CHECK(waits.board->sleepers().load() == 0);
  CHECK(waits.slots(7, 1, 4).first);
}

TEST_CASE("the ends of all waits") {
  Waits waits;
  waits.slots(5, 1, 1);
  waits.peer(2);
  waits.all.tell_slots();
  CHECK(std::exchange(waits.told, {}) == Names{1});
  waits.all.tell_peers();
  CHECK(std::exchange(waits.told, {}) == Names{2});
  waits.peer(3);
  waits.slots(5, 1, 4);
  waits.all.tell_all();
  CHECK(waits.told == Names{4, 3});
}

TEST_CASE("Done wakes each waiter once, also one that comes after the end") {
  Done done;
  int told = 0;
  done.on_set([&] { ++told; });
  done.on_set([&] { ++told; });
  done.forget(done.on_set([&] { told += 100; }));
  CHECK_FALSE(done.is());
  done.set();
  CHECK(done.is());
  CHECK(told == 2);
  done.on_set([&] { ++told; });
  CHECK(told == 3);
}

}  // namespace
}  // namespace zerohop::testing
