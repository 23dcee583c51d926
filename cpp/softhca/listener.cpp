#include "softhca/listener.hpp"

#include <sys/socket.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <optional>

#include "base/error.hpp"
#include "base/strangers.hpp"
#include "softhca/context.hpp"
#include "softhca/gid.hpp"
#include "softhca/queue_pair.hpp"

namespace zerohop::softhca {
namespace {

using std::chrono::milliseconds;

constexpr int kBacklog = 4096;
constexpr int kAcceptsAtOnce = 64;            // then the established connections get their turn
constexpr std::size_t kMostStrangers = 4096;  // one goes when one more comes
constexpr milliseconds kHelloTime{2000};      // from accept to the last byte of the hello
constexpr milliseconds kParkTime{5000};       // from hello to ibv_modify_qp(RTR)
constexpr milliseconds kRestTime{100};        // without accepting, when out of descriptors

UniqueFd listen_on(in_addr address, sockaddr_in& bound) {
  UniqueFd fd = UniqueFd::open(
      [] { return ::socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0); });
  bound = {};
  bound.sin_family = AF_INET;
  bound.sin_addr = address;
  socklen_t nbytes = sizeof bound;
  auto* generic = reinterpret_cast<sockaddr*>(&bound);
  if (!fd || ::bind(fd.get(), generic, nbytes) != 0 || ::listen(fd.get(), kBacklog) != 0 ||
      ::getsockname(fd.get(), generic, &nbytes) != 0) {
    throw Error(errno_message("the soft device cannot listen on its interface's address", errno),
                errno);
  }
  return fd;
}

}  // namespace

Listener::Listener(Context& context, in_addr address) : context_(context) {
  sockaddr_in bound;
  fd_ = listen_on(address, bound);
  gid_ = make_gid(bound);
  if (!context_.poller.add(fd_.get(), EPOLLIN, *this)) {
    throw Error(errno_message("epoll_ctl failed", errno), errno);
  }
}

Listener::~Listener() { context_.timers.cancel(*this); }

void Listener::on_ready(std::uint32_t) noexcept {
  bury();
  for (int i = 0; i < kAcceptsAtOnce; ++i) {
    UniqueFd connection = UniqueFd::open(
        [this] { return ::accept4(fd_.get(), nullptr, nullptr, SOCK_NONBLOCK | SOCK_CLOEXEC); });
    if (connection) {
      admit(std::move(connection));
    } else {
      if (errno == EMFILE || errno == ENFILE || errno == ENOBUFS || errno == ENOMEM) rest();
      if (errno != ECONNABORTED && errno != EINTR) return;
    }
  }
}

void Listener::admit(UniqueFd connection) noexcept {
  make_room();
  try {
    Stranger& stranger = strangers_.emplace_back(*this, std::move(connection));
    ++open_;
    stranger.came = Clock::now();
    stranger.deadline = stranger.came + kHelloTime;
    if (!context_.poller.add(stranger.fd.get(), EPOLLIN, stranger)) return reject(stranger);
    if (!timing_) wake_at(stranger.deadline);
    hear(stranger);  // a hello sent with the connection is there already
  } catch (const std::bad_alloc&) {
    rejected_.fetch_add(1, std::memory_order_relaxed);  // `connection` closes itself
  }
}

// Who has named a queue pair stays before those who have not.
void Listener::make_room() noexcept {
  if (open_ < most_strangers(kMostStrangers)) return;
  const auto came = [](const Stranger& stranger) {
    return stranger.fd ? std::optional(stranger.came) : std::nullopt;
  };
  const auto unnamed = [&](const Stranger& stranger) {
    return stranger.parked() ? std::nullopt : came(stranger);
  };
  auto victim = pick_victim(strangers_.begin(), strangers_.end(), unnamed);
  if (victim == strangers_.end()) {
    victim = pick_victim(strangers_.begin(), strangers_.end(), came);
  }
  reject(*victim);
}

void Listener::hear(Stranger& stranger) noexcept {
  if (!stranger.fd || stranger.parked()) {
    // The hello is all a stranger may say before it is welcomed: more, or the end, is a breach.
    if (stranger.fd) reject(stranger);
    return;
  }
  auto* at = reinterpret_cast<std::byte*>(&stranger.hello) + stranger.heard;
  const ssize_t nbytes =
      ::recv(stranger.fd.get(), at, sizeof(Hello) - stranger.heard, MSG_DONTWAIT);
  if (nbytes < 0 && (errno == EAGAIN || errno == EINTR)) return;
  if (nbytes <= 0) return reject(stranger);
  stranger.heard += static_cast<std::size_t>(nbytes);
  if (stranger.heard == sizeof(Hello)) introduce(stranger);
}

void Listener::introduce(Stranger& stranger) noexcept {
  const auto found = context_.queue_pairs.find(stranger.hello.destination_qp);
  if (found == context_.queue_pairs.end()) return reject(stranger);
  QueuePair& qp = *found->second;
  if (!is_there(stranger)) return reject(stranger);
  std::lock_guard guard(qp.lock);
  switch (qp.connection.judge(stranger.hello)) {
    case Verdict::yes: return qp.connection.adopt(release(stranger), stranger.hello);
    case Verdict::later: stranger.deadline = Clock::now() + kParkTime; return;
    case Verdict::no: return reject(stranger);
  }
}

void Listener::claim(QueuePair& qp) noexcept {
  for (Stranger& stranger : strangers_) {
    if (!stranger.parked() || stranger.hello.destination_qp != qp.qp_num) continue;
    if (!is_there(stranger)) {
      reject(stranger);
      continue;
    }
    std::lock_guard guard(qp.lock);
    const Verdict verdict = qp.connection.judge(stranger.hello);
    if (verdict == Verdict::yes) qp.connection.adopt(release(stranger), stranger.hello);
    if (verdict == Verdict::no) reject(stranger);
  }
}

// A queue pair that was reset dials again, and its earlier hello, which says the same, may still be
// here: a connection whose other end has closed is not given to anybody.
bool Listener::is_there(const Stranger& stranger) noexcept {
  char next;
  const ssize_t nbytes = ::recv(stranger.fd.get(), &next, 1, MSG_PEEK | MSG_DONTWAIT);
  return nbytes < 0 && (errno == EAGAIN || errno == EINTR);
}

void Listener::reject(Stranger& stranger) noexcept {
  rejected_.fetch_add(1, std::memory_order_relaxed);
  release(stranger).reset();
}

UniqueFd Listener::release(Stranger& stranger) noexcept {
  context_.poller.remove(stranger.fd.get());
  --open_;
  stranger.closed_in = context_.poller.round();
  return std::move(stranger.fd);
}

void Listener::bury() noexcept {
  strangers_.remove_if([round = context_.poller.round()](const Stranger& stranger) {
    return !stranger.fd && stranger.closed_in != round;
  });
}

void Listener::rest() noexcept {
  resting_ = true;
  context_.poller.remove(fd_.get());
  wake_at(Clock::now() + kRestTime);
}

void Listener::wake_at(Clock::time_point time) noexcept {
  timing_ = true;
  context_.timers.set(*this, time);
}

void Listener::on_time() noexcept {
  timing_ = false;
  if (resting_) {
    resting_ = false;
    context_.poller.add(fd_.get(), EPOLLIN, *this);
  }
  const auto now = Clock::now();
  auto next = Clock::time_point::max();
  for (Stranger& stranger : strangers_) {
    if (!stranger.fd) continue;
    if (stranger.deadline <= now) {
      reject(stranger);
    } else {
      next = std::min(next, stranger.deadline);
    }
  }
  if (next != Clock::time_point::max()) wake_at(next);
}

}  // namespace zerohop::softhca
