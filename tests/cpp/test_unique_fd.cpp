// Descriptors have one owner, and a child made by fork has none of them.
#include <doctest/doctest.h>
#include <fcntl.h>
#include <poll.h>
#include <sys/eventfd.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <cstdio>
#include <string_view>
#include <thread>
#include <utility>

#include "base/bell.hpp"
#include "base/unique_fd.hpp"

namespace zerohop {
namespace {

UniqueFd make() {
  return UniqueFd::open([] { return ::eventfd(0, EFD_CLOEXEC); });
}

bool is_open(int fd) { return ::fcntl(fd, F_GETFD) >= 0; }

// The result of `body` in a child.
template <typename Body>
int in_child(Body body) {
  const pid_t child = ::fork();
  if (child == 0) ::_exit(body());
  int status = -1;
  REQUIRE(::waitpid(child, &status, 0) == child);
  REQUIRE(WIFEXITED(status));
  return WEXITSTATUS(status);
}

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

}  // namespace
}  // namespace zerohop
