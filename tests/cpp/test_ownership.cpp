// Who owns a descriptor, memory or an Endpoint, and how long it stays for its users.
#include <doctest/doctest.h>
#include <fcntl.h>
#include <poll.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include <array>
#include <atomic>
#include <cerrno>
#include <chrono>
#include <cstdio>
#include <future>
#include <memory>
#include <optional>
#include <string_view>
#include <thread>
#include <utility>
#include <vector>

#include "base/bell.hpp"
#include "base/error.hpp"
#include "base/unique_fd.hpp"
#include "engine/core/life.hpp"
#include "engine/memory/expiry.hpp"
#include "engine/memory/grant.hpp"
#include "engine/memory/lease.hpp"
#include "process.hpp"

namespace zerohop::testing {
namespace {

using namespace engine;
using namespace std::chrono_literals;
using std::chrono::milliseconds;
using zerohop::engine::Lease;
using zerohop::engine::Life;

// --- descriptors ---

UniqueFd make() {
  return UniqueFd::open([] { return ::eventfd(0, EFD_CLOEXEC); });
}

bool is_open(int fd) { return ::fcntl(fd, F_GETFD) >= 0; }

TEST_CASE("a descriptor is closed once, by its last owner") {
  UniqueFd first = make();
  const int fd = first.get();
  UniqueFd second = std::move(first);
  CHECK_FALSE(first);
  CHECK(second.get() == fd);
  second = make();
  CHECK_FALSE(is_open(fd));
  const int kept = second.release();
  CHECK(is_open(kept));
  UniqueFd{kept}.reset();
  CHECK_FALSE(is_open(kept));
}

TEST_CASE("nothing is owned when opening failed, and errno says why") {
  const UniqueFd none = UniqueFd::open([] { return ::open("/nowhere/at/all", O_RDONLY); });
  CHECK(errno == ENOENT);
  CHECK_FALSE(none);
}

TEST_CASE("a child has no descriptor of its parent, and closes none of its own by mistake") {
  UniqueFd parents = make();
  const int number = parents.get();
  const int released = make().release();
  CHECK(in_child([&] {
          if (is_open(number) || parents) return 1;
          UniqueFd childs = make();
          if (childs.get() != number) return 2;  // free again, and not the parent's
          parents.reset();
          return is_open(number) && is_open(released) ? 0 : 3;
        }) == 0);
  CHECK(is_open(number));
  ::close(released);
}

TEST_CASE("a bell rings until it is silenced, however often it was rung") {
  Bell bell;
  const auto rings = [&bell] {
    pollfd readable{.fd = bell.fd(), .events = POLLIN, .revents = 0};
    return ::poll(&readable, 1, 0) == 1;
  };
  CHECK_FALSE(rings());
  bell.ring();
  bell.ring();
  CHECK(rings());
  bell.silence();
  CHECK_FALSE(rings());
  bell.silence();  // returns although the bell was silent
}

TEST_CASE("no fork comes between opening and owning") {
  std::atomic<bool> stop{false};
  std::thread opener([&] {
    while (!stop) make().reset();
  });
  for (int i = 0; i < 200; ++i) {
    CHECK(in_child([] {
            for (int fd = 3; fd < 64; ++fd) {
              char target[64] = {};
              char name[32];
              ::snprintf(name, sizeof name, "/proc/self/fd/%d", fd);
              if (::readlink(name, target, sizeof target - 1) < 0) continue;
              if (std::string_view(target) == "anon_inode:[eventfd]") return 1;
            }
            return 0;
          }) == 0);
  }
  stop = true;
  opener.join();
}

// --- an object used by many threads until one closes it ---

struct Thing {
  explicit Thing(std::atomic<int>& count) : ended(count) {}
  ~Thing() {
    value = 0;
    ended.fetch_add(1);
  }
  Thing(const Thing&) = delete;
  Thing& operator=(const Thing&) = delete;

  int value = 42;
  std::atomic<int>& ended;
};

TEST_CASE("a closed object is kept for its users, and for nobody else") {
  std::atomic<int> ended{0};
  Lease<Thing> lease(std::make_shared<Thing>(ended));
  CHECK_FALSE(lease.closed());
  {
    const Lease<Thing>::Use use(lease);
    REQUIRE(use);
    CHECK(lease.close() != nullptr);
    CHECK(lease.closed());
    CHECK(ended == 0);
    CHECK(use.what()->value == 42);
    CHECK_FALSE(static_cast<bool>(Lease<Thing>::Use(lease)));
    CHECK(lease.close() == nullptr);
    CHECK(ended == 0);
  }
  CHECK(ended == 1);
  CHECK_FALSE(static_cast<bool>(Lease<Thing>::Use(lease)));
}

TEST_CASE("what nobody uses goes with the closing, unless its owner keeps it") {
  std::atomic<int> ended{0};
  Lease<Thing> lease(std::make_shared<Thing>(ended));
  auto kept = lease.close();
  CHECK(ended == 0);
  kept.reset();
  CHECK(ended == 1);
}

TEST_CASE("a use may hand an owner on") {
  std::atomic<int> ended{0};
  Lease<Thing> lease(std::make_shared<Thing>(ended));
  auto owner = Lease<Thing>::Use(lease).what();
  lease.close();
  CHECK(ended == 0);
  owner.reset();
  CHECK(ended == 1);
}

TEST_CASE("threads use it while others close it: it ends once, behind all of them") {
  constexpr int kThreads = 4;
  for (int round = 0; round < 200; ++round) {
    std::atomic<int> ended{0};
    std::atomic<int> begun{0};
    std::atomic<int> closed{0};
    Lease<Thing> lease(std::make_shared<Thing>(ended));
    std::atomic<bool> wrong{false};
    std::vector<std::thread> threads;
    for (int i = 0; i < kThreads; ++i) {
      threads.emplace_back([&, i] {
        for (int n = 0;; ++n) {
          const Lease<Thing>::Use use(lease);
          if (!use) return;
          if (use.what()->value != 42) wrong = true;
          if (n == 0) begun.fetch_add(1);
          if (i < 2 && begun == kThreads && lease.close()) closed.fetch_add(1);
        }
      });
    }
    for (auto& thread : threads) thread.join();
    REQUIRE_FALSE(wrong);
    REQUIRE(closed == 1);
    REQUIRE(ended == 1);
  }
}

// --- an object releases what it holds once, when no thread is inside any more ---

TEST_CASE("with nobody inside the end releases") {
  int released = 0;
  Life life([&] { ++released; });
  {
    const Life::Inside inside(life);
  }
  CHECK(released == 0);
  life.end(milliseconds(0));
  CHECK(released == 1);
  {
    const Life::Inside inside(life);
  }
  life.end(milliseconds(0));
  CHECK(released == 1);
}

TEST_CASE("the last to leave releases what the end did not wait for") {
  int released = 0;
  Life life([&] { ++released; });
  std::optional<Life::Inside> first(std::in_place, life);
  std::optional<Life::Inside> second(std::in_place, life);
  life.end(milliseconds(1));
  CHECK(released == 0);
  first.reset();
  CHECK(released == 0);
  second.reset();
  CHECK(released == 1);
}

// --- a right that several threads revoke at once: none returns before it is gone ---

constexpr Extent kWhere{0x1000, 0x2000};

// GPU memory that the Endpoint copies, in the state of a running copy for a peer.
struct Copied {
  std::shared_ptr<StagedMemories> staged = std::make_shared<StagedMemories>();
  std::shared_ptr<const StagedMemories::Right> right = staged->open(kWhere, true);
  Memory memory = make();
  std::shared_ptr<const Registration> copy = staged->borrow(right->key());

  Memory make() {
    auto regions = std::make_shared<Regions>();
    regions->set_staged(right);
    const auto registration = std::make_shared<const Registration>(std::move(regions), nullptr);
    staged->bind(*right, registration);
    return Memory(EndpointId{}, Layout::bytes(kWhere.begin, kWhere.end - kWhere.begin),
                  registration, {});
  }
};

TEST_CASE("revoking waits for another thread that revokes the same") {
  Copied copied;
  Grant grant(copied.memory);
  auto first = std::async(std::launch::async, [&] { grant.revoke(); });
  while (!copied.memory.closed()) std::this_thread::yield();
  CHECK_THROWS_AS((void)grant.remote(), RegistrationError);
  CHECK_FALSE(grant.revoked());
  auto revoked = std::async(std::launch::async, [&] {
    grant.revoke();
    return grant.revoked();
  });
  CHECK(revoked.wait_for(50ms) == std::future_status::timeout);
  CHECK_FALSE(grant.revoked());
  copied.copy.reset();
  CHECK(revoked.get());
  first.get();
  CHECK(grant.revoked());
}

TEST_CASE("memory that is closed again by the end of its owner does not wait for itself") {
  std::unique_ptr<Memory> memory;
  bool again = false;
  std::shared_ptr<void> owner(nullptr, [&](void*) {
    memory->close();
    again = memory->withdrawn();
  });
  memory = std::make_unique<Memory>(EndpointId{}, Layout::bytes(kWhere.begin, 0),
                                    std::make_shared<const Registration>(nullptr, std::move(owner)),
                                    Memory::Kind{});
  CHECK_FALSE(again);
  memory->close();
  CHECK(again);
}

bool have_no_right(const Copied& first, const Copied& second) {
  return first.staged->find(first.right->key(), kWhere, false) == nullptr &&
         second.staged->find(second.right->key(), kWhere, false) == nullptr;
}

TEST_CASE("what is closed together waits together for copies") {
  Copied first, second;
  const std::array both{first.memory.weak(), second.memory.weak()};
  auto closed = std::async(std::launch::async, [&] { WeakMemory::close(both); });
  while (!have_no_right(first, second)) std::this_thread::yield();
  CHECK_FALSE(first.memory.withdrawn());  // neither waited for the copy before
  CHECK_FALSE(second.memory.withdrawn());
  CHECK(closed.wait_for(50ms) == std::future_status::timeout);
  second.copy.reset();
  first.copy.reset();
  closed.get();
  CHECK(first.memory.withdrawn());
  CHECK(second.memory.withdrawn());
}

TEST_CASE("what expires at the same time ends at the same time, whichever copy still runs") {
  Copied first, second;
  Expiry expiry;
  const auto now = Expiry::Clock::now();
  expiry.at(now, first.memory.weak());
  expiry.at(now, second.memory.weak());
  while (!have_no_right(first, second)) std::this_thread::yield();
  CHECK_FALSE(first.memory.withdrawn());
  CHECK_FALSE(second.memory.withdrawn());
  first.copy.reset();
  second.copy.reset();
  expiry.stop();
}

TEST_CASE("once stopped nothing expires any more") {
  Copied copied;
  copied.copy.reset();
  Expiry expiry;
  expiry.stop();
  expiry.at(Expiry::Clock::now(), copied.memory.weak());
  CHECK_FALSE(expiry.runs());
  CHECK_FALSE(copied.memory.closed());
}

}  // namespace
}  // namespace zerohop::testing
