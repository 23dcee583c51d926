// A child of fork() that inherited Endpoints: whatever it does with them, it takes none of their
// locks, which a thread of the parent may hold. Builds that check locks would abort it.
#include <doctest/doctest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <csignal>
#include <functional>
#include <memory>
#include <optional>
#include <string_view>
#include <thread>
#include <vector>

#include "base/error.hpp"
#include "couple.hpp"
#include "eventually.hpp"

namespace zerohop::testing {
namespace {

using namespace zerohop::engine;

constexpr DType kBytes{.code = kDTypeUInt, .bits = 8, .lanes = 1};
constexpr std::int64_t kNbytes = 4096;

EndpointOptions of_kind(const char* name, bool p2p) {
  EndpointOptions chosen = options(name);
  chosen.p2p = p2p;
  return chosen;
}

// Two Endpoints with all that a program may have of them.
struct House {
  explicit House(bool p2p) : left(of_kind("left", p2p)), right(of_kind("right", p2p)) {}

  Endpoint left, right;
  std::shared_ptr<Peer> to_right = left.connect(right.address().to_bytes(), soon());
  std::shared_ptr<Peer> to_left = right.accept(soon());
  Memory ours = left.empty(std::span(&kNbytes, 1), kBytes);
  Memory theirs = right.empty(std::span(&kNbytes, 1), kBytes);
  std::optional<Grant> grant = right.grant(theirs, {.seconds = std::chrono::hours(1)});
  RemoteMemory there = theirs.remote();
  std::vector<std::shared_ptr<Transfer>> transfers{write()};

  std::shared_ptr<Transfer> write() {
    const Peer::Pair pair{&ours, &there};
    return to_right->write(std::span(&pair, 1), {});
  }
};

bool is_refused(const std::function<void()>& use) {
  try {
    use();
  } catch (const Error& error) {
    return std::string_view(error.what()).find("fork") != std::string_view::npos;
  }
  return false;
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

}  // namespace
}  // namespace zerohop::testing
