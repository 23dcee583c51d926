#include "base/acceptor.hpp"

#include <sys/resource.h>
#include <sys/socket.h>

#include <algorithm>
#include <cerrno>

#include "base/error.hpp"
#include "base/random.hpp"
#include "base/scarcity.hpp"

namespace zerohop {
namespace {

using std::chrono::milliseconds;

constexpr milliseconds kRest{100};          // how long accepting pauses after a failure
constexpr milliseconds kSpeaksWithin{100};  // ordinary greetings have arrived by then

std::size_t most_now(std::size_t wished) noexcept {
  rlimit descriptors{};
  if (::getrlimit(RLIMIT_NOFILE, &descriptors) != 0) return wished;
  return std::clamp<std::size_t>(descriptors.rlim_cur / 4, 1, wished);
}

// A random number in [0, count), unpredictable to others.
std::size_t any_of(std::size_t count) noexcept {
  try {
    return random_u32() % count;
  } catch (const Error&) {  // the kernel gives no random bytes: the first
    return 0;
  }
}

}  // namespace

UniqueFd accept_connection(int listener) {
  for (;;) {
    UniqueFd fd = UniqueFd::open(
        [listener] { return ::accept4(listener, nullptr, nullptr, SOCK_NONBLOCK | SOCK_CLOEXEC); });
    if (fd) return fd;
    switch (errno) {
      case EAGAIN:
      case EMFILE:
      case ENFILE:
      case ENOBUFS:
      case ENOMEM:
      case EBADF:
      case EINVAL:
      case ENOTSOCK: return fd;
      default: continue;
    }
  }
}

void Acceptor::accept() {
  for (int i = 0; i < limits_.at_once; ++i) {
    UniqueFd connection = accept_connection(listener_.get());
    if (!connection && errno == EAGAIN) return;
    if (!connection) {
      const int error = errno;
      rest();
      throw_scarce("no connection can be accepted for now", error);
    }
    make_room();
    const int fd = connection.get();
    try {
      const auto now = Clock::now();
      pending_.insert_or_assign(fd, Pending{.came = now, .until = now + limits_.patience});
      owner_.admit(std::move(connection));
    } catch (...) {
      settle(fd);
      rest();
      throw;
    }
  }
}

void Acceptor::prefer(int fd, Clock::time_point until) noexcept {
  const auto found = pending_.find(fd);
  if (found == pending_.end()) return;
  found->second.until = until;
  found->second.preferred = true;
}

void Acceptor::make_room() {
  if (pending_.size() < most_now(limits_.most_pending)) return;
  auto victim = pick(/*preferred=*/false);
  if (victim == pending_.end()) victim = pick(/*preferred=*/true);
  const int fd = victim->first;
  pending_.erase(victim);
  owner_.turn_away(fd, "too many connections are pending");
}

// Picks at random, so that nobody can aim at another's connection. Prefers connections that have
// had time to send a greeting: a burst of new connections then does not evict the honest ones that
// arrived with it. A greeting needs no secret, so having sent one protects nobody.
Acceptor::All::iterator Acceptor::pick(bool preferred) noexcept {
  const Clock::time_point now = Clock::now();
  const auto is_slow = [now](const Pending& one) { return now - one.came > kSpeaksWithin; };
  std::size_t all = 0, slow = 0;
  for (const auto& [fd, one] : pending_) {
    if (one.preferred != preferred) continue;
    ++all;
    if (is_slow(one)) ++slow;
  }
  if (all == 0) return pending_.end();
  std::size_t before = any_of(slow > 0 ? slow : all);
  auto at = pending_.begin();
  for (;; ++at) {
    const Pending& one = at->second;
    if (one.preferred == preferred && (slow == 0 || is_slow(one)) && before-- == 0) return at;
  }
}

void Acceptor::rest() noexcept {
  if (rests_ == Clock::time_point{}) owner_.watch_listener(false);
  rests_ = Clock::now() + kRest;
}

Acceptor::Clock::time_point Acceptor::look(Clock::time_point now) {
  auto next = Clock::time_point::max();
  if (rests_ != Clock::time_point{}) {
    if (now >= rests_) {
      rests_ = {};
      owner_.watch_listener(true);
    } else {
      next = rests_;
    }
  }
  for (auto at = pending_.begin(); at != pending_.end();) {
    const auto [fd, one] = *at;
    if (one.until > now) {
      next = std::min(next, one.until);
      ++at;
      continue;
    }
    at = pending_.erase(at);
    owner_.turn_away(fd, "it did not send a greeting in time");
  }
  return next;
}

}  // namespace zerohop
