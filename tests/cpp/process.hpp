// Children of this process, and its limits.
#pragma once

#include <doctest/doctest.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

namespace zerohop::testing {

// The exit code; 128 and the signal where one ended it.
inline int exit_code(pid_t child) {
  int status = 0;
  REQUIRE(::waitpid(child, &status, 0) == child);
  return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
}

// The exit code of a child, which `body` returns.
template <typename Body>
int in_child(Body body) {
  const pid_t child = ::fork();
  REQUIRE(child >= 0);
  if (child == 0) ::_exit(static_cast<int>(body()));
  return exit_code(child);
}

// Lowers a limit of this process, for its lifetime.
class Lowered {
 public:
  Lowered(__rlimit_resource_t resource, rlim_t soft) : resource_(resource) {
    REQUIRE(::getrlimit(resource, &before_) == 0);
    const rlimit lower{soft, before_.rlim_max};
    REQUIRE(::setrlimit(resource, &lower) == 0);
  }
  ~Lowered() { ::setrlimit(resource_, &before_); }
  Lowered(const Lowered&) = delete;
  Lowered& operator=(const Lowered&) = delete;

 private:
  __rlimit_resource_t resource_;
  rlimit before_{};
};

}  // namespace zerohop::testing
