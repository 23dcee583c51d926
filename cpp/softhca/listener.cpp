#include "softhca/listener.hpp"

#include <sys/socket.h>

#include <cerrno>
#include <cstring>
#include <exception>

#include "base/error.hpp"
#include "softhca/context.hpp"
#include "softhca/gid.hpp"
#include "softhca/queue_pair.hpp"

namespace zerohop::softhca {
namespace {

using std::chrono::milliseconds;

constexpr int kBacklog = 4096;
constexpr Acceptor::Limits kLimits{
    .at_once = 64, .most_pending = 4096, .patience = milliseconds(2000)};
constexpr milliseconds kParkTime{5000};  // from hello to ibv_modify_qp(RTR)

UniqueFd listen_on(in_addr address) {
  UniqueFd fd = UniqueFd::open(
      [] { return ::socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0); });
  sockaddr_in wanted{};
  wanted.sin_family = AF_INET;
  wanted.sin_addr = address;
  if (!fd || ::bind(fd.get(), reinterpret_cast<sockaddr*>(&wanted), sizeof wanted) != 0 ||
      ::listen(fd.get(), kBacklog) != 0) {
    throw Error(errno_message("the soft device cannot listen on its interface's address", errno),
                errno);
  }
  return fd;
}

ibv_gid gid_of(int listener) {
  sockaddr_in bound{};
  socklen_t nbytes = sizeof bound;
  if (::getsockname(listener, reinterpret_cast<sockaddr*>(&bound), &nbytes) != 0) {
    throw Error(errno_message("getsockname failed", errno), errno);
  }
  return make_gid(bound);
}

}  // namespace

Listener::Listener(Context& context, in_addr address)
    : context_(context), acceptor_(listen_on(address), kLimits, *this) {
  gid_ = gid_of(acceptor_.fd());
  if (!context_.poller.add(acceptor_.fd(), EPOLLIN, *this)) {
    throw Error(errno_message("epoll_ctl failed", errno), errno);
  }
}

Listener::~Listener() { context_.timers.cancel(*this); }

void Listener::on_ready(std::uint32_t) noexcept {
  bury();
  try {
    acceptor_.accept();
  } catch (const std::exception&) {  // out of descriptors or memory: retry after a pause
  }
  look();
}

void Listener::admit(UniqueFd connection) {
  Pending& pending = pending_.emplace_back(*this, std::move(connection));
  if (!context_.poller.add(pending.fd.get(), EPOLLIN, pending)) return reject(pending);
  hear(pending);  // a hello sent with the connection is already there
}

void Listener::turn_away(int fd, const char*) noexcept {
  for (Pending& pending : pending_) {
    if (pending.fd.get() == fd) return reject(pending);
  }
}

void Listener::watch_listener(bool watched) noexcept {
  context_.poller.change(acceptor_.fd(), watched ? std::uint32_t{EPOLLIN} : 0U, *this);
}

void Listener::hear(Pending& pending) noexcept {
  if (!pending.fd || pending.parked()) {
    // Only the hello may arrive before the connection is adopted: more bytes, or the end, are a
    // breach.
    if (pending.fd) reject(pending);
    return;
  }
  auto* at = reinterpret_cast<std::byte*>(&pending.hello) + pending.heard;
  const ssize_t nbytes = ::recv(pending.fd.get(), at, sizeof(Hello) - pending.heard, MSG_DONTWAIT);
  if (nbytes < 0 && (errno == EAGAIN || errno == EINTR)) return;
  if (nbytes <= 0) return reject(pending);
  pending.heard += static_cast<std::size_t>(nbytes);
  if (pending.heard == sizeof(Hello)) introduce(pending);
}

void Listener::introduce(Pending& pending) noexcept {
  const auto found = context_.queue_pairs.find(pending.hello.destination_qp);
  if (found == context_.queue_pairs.end()) return reject(pending);
  QueuePair& qp = *found->second;
  if (!is_welcome(pending)) return reject(pending);
  std::lock_guard guard(qp.lock);
  switch (qp.connection.judge(pending.hello)) {
    case Verdict::yes: return qp.connection.adopt(release(pending), pending.hello);
    case Verdict::later: return acceptor_.prefer(pending.fd.get(), Clock::now() + kParkTime);
    case Verdict::no: return reject(pending);
  }
}

void Listener::claim(QueuePair& qp) noexcept {
  for (Pending& pending : pending_) {
    if (!pending.parked() || pending.hello.destination_qp != qp.qp_num) continue;
    if (!is_welcome(pending)) {
      reject(pending);
      continue;
    }
    std::lock_guard guard(qp.lock);
    const Verdict verdict = qp.connection.judge(pending.hello);
    if (verdict == Verdict::yes) qp.connection.adopt(release(pending), pending.hello);
    if (verdict == Verdict::no) reject(pending);
  }
}

// A queue pair that was reset dials again, but its earlier, identical hello may still be here, so a
// connection closed by its other end is not handed over. A connection from a host that guesses keys
// is closed silently; its owner dials again.
bool Listener::is_welcome(const Pending& pending) const noexcept {
  if (context_.guesses.wait(other_end(pending.fd.get()))) return false;
  char next;
  const ssize_t nbytes = ::recv(pending.fd.get(), &next, 1, MSG_PEEK | MSG_DONTWAIT);
  return nbytes < 0 && (errno == EAGAIN || errno == EINTR);
}

void Listener::reject(Pending& pending) noexcept {
  rejected_.fetch_add(1, std::memory_order_relaxed);
  release(pending).reset();
}

UniqueFd Listener::release(Pending& pending) noexcept {
  context_.poller.remove(pending.fd.get());
  acceptor_.settle(pending.fd.get());
  pending.closed_in = context_.poller.round();
  return std::move(pending.fd);
}

void Listener::bury() noexcept {
  pending_.remove_if([round = context_.poller.round()](const Pending& pending) {
    return !pending.fd && pending.closed_in != round;
  });
}

void Listener::on_time() noexcept {
  looks_at_ = Clock::time_point::max();
  look();
}

void Listener::look() noexcept {
  const auto next = acceptor_.look(Clock::now());
  if (next >= looks_at_) return;
  looks_at_ = next;
  context_.timers.set(*this, next);
}

}  // namespace zerohop::softhca
