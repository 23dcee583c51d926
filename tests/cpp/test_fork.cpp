// Ends of processes with open Endpoints. A child of fork() takes none of their locks, whatever it
// does with them: a thread of the parent may hold one. At the exit their threads run to the very
// end.
#include <doctest/doctest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <memory>
#include <optional>
#include <vector>

#include "couple.hpp"

namespace zerohop::testing {
namespace {

using namespace engine;

constexpr std::int64_t kNbytes = 100'000;

// Two Endpoints with all that a program may have of them.
struct House {
  explicit House(bool p2p)
      : left(p2p ? near("left") : options("left")), right(p2p ? near("right") : options("right")) {}

  Endpoint left, right;
  std::shared_ptr<Peer> to_right = left.connect(right.address().to_bytes(), soon());
  std::shared_ptr<Peer> to_left = right.accept(soon());
  Memory ours = host_array(left, {kNbytes});
  Memory theirs = host_array(right, {kNbytes});
  std::optional<Grant> grant = right.grant(theirs, {.seconds = std::chrono::hours(1)});
  RemoteMemory there = theirs.remote();
  std::vector<std::shared_ptr<Transfer>> transfers{write()};

  std::shared_ptr<Transfer> write() { return testing::write(*to_right, ours, there); }
};

bool is_refused(const std::function<void()>& use) {
  return contains(message_of<Error>(use), "fork");
}

// The exit status of a child that runs `body`, which returns whether all went well.
template <typename Body>
int status_in_child(Body body) {
  const pid_t child = ::fork();
  REQUIRE(child >= 0);
  if (child == 0) {
    bool well = false;
    try {
      well = body();
    } catch (...) {
    }
    ::_exit(well ? 0 : 1);
  }
  int status = 0;
  const bool ended = eventually([&] { return ::waitpid(child, &status, WNOHANG) == child; });
  if (!ended) ::kill(child, SIGKILL);
  REQUIRE(ended);
  return status;
}

TEST_CASE("what a child does with the Endpoints of its parent takes none of their locks") {
  bool p2p = false;
  SUBCASE("over soft0") { p2p = false; }
  SUBCASE("by p2p") { p2p = true; }
  auto house = std::make_unique<House>(p2p);
  REQUIRE(house->transfers.front()->wait(soon()));
  const int status = status_in_child([&] {
    House& all = *house;
    const bool refused =
        is_refused([&] { all.left.peers(); }) && is_refused([&] { all.left.device_events(); }) &&
        is_refused([&] { all.left.faults(); }) &&
        is_refused([&] { all.left.gpu_registration_stats(); }) &&
        is_refused([&] { all.left.accept(soon()); }) &&
        is_refused([&] { all.left.share("x", all.ours); }) && is_refused([&] { all.write(); }) &&
        is_refused([&] { all.to_right->notify({.slot = 1, .value = 1}); }) &&
        is_refused([&] { static_cast<void>(all.ours.remote()); });
    all.grant->revoke();
    const bool revoked = all.grant->revoked();
    all.ours.close();
    all.left.close(soon());
    house.reset();
    return refused && revoked;
  });
  CHECK(status == 0);
  CHECK_FALSE(house->grant->revoked());
  REQUIRE(house->write()->wait(soon()));
}

// ThreadSanitizer ends a child in which a thread reuses the id of one of the parent's.
#ifdef __SANITIZE_THREAD__

constexpr bool kChildrenHaveThreads = false;
#else
constexpr bool kChildrenHaveThreads = true;
#endif

TEST_CASE("a child may have Endpoints of its own" * doctest::skip(!kChildrenHaveThreads)) {
  House house(/*p2p=*/false);
  // Its threads run by now. One that starts holds a lock of AddressSanitizer's allocator for a
  // while, which a child that is forked meanwhile would never see released.
  REQUIRE(house.write()->wait(soon()));
  const int status = status_in_child([&] {
    House own(/*p2p=*/true);
    return own.write()->wait(soon());
  });
  CHECK(status == 0);
  REQUIRE(house.write()->wait(soon()));
}

// --- the exit: beyond the destructors of static objects ---

struct Open : Couple {
  Memory ours = host_array(left, {kNbytes});
  Memory theirs = host_array(right, {kNbytes});

  bool exchange(int value) {
    std::memset(reinterpret_cast<void*>(ours.layout().address), value, kNbytes);
    if (!write(*to_right, ours, theirs.remote())->wait(soon())) return false;
    return std::memcmp(reinterpret_cast<void*>(ours.layout().address),
                       reinterpret_cast<void*>(theirs.layout().address), kNbytes) == 0;
  }
};

Open* open = nullptr;

// Runs last: everything constructed after its registration has been destroyed.
void exchange_at_the_end() {
  Endpoint late(options("late"));
  if (late.connect(open->left.address().to_bytes(), soon()) && open->exchange(2)) return;
  std::puts("what was static is gone, and with it what open Endpoints use");
  std::fflush(stdout);
  ::_exit(1);
}

TEST_CASE("open Endpoints outlive what is static") {
  REQUIRE(std::atexit(exchange_at_the_end) == 0);
  open = new Open;
  CHECK(open->exchange(1));
}

}  // namespace
}  // namespace zerohop::testing
