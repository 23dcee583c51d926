#include "softhca/connection.hpp"

#include <netinet/tcp.h>
#include <sys/socket.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstddef>
#include <cstring>

#include "softhca/ack_timeout.hpp"
#include "softhca/context.hpp"
#include "softhca/gid.hpp"
#include "softhca/queue_pair.hpp"

namespace zerohop::softhca {
namespace {

using std::chrono::milliseconds;

constexpr milliseconds kFirstBackoff{1};
constexpr milliseconds kLastBackoff{250};
constexpr milliseconds kLingerTime{1000};
// A real adapter answers in hardware; here the peer's program may be late because CPUs are busy.
constexpr milliseconds kLeastRetryTime{1000};
// If the peer's kernel acknowledges nothing for this long, the path is cut (the peer's program may
// be slow, but its kernel answers for it). Pending requests then fail within the promised 5 s, even
// if only this connection is cut.
constexpr int kPathTimeoutMs = 3500;

// Reno needs no privilege and is in every kernel (tcp(7)). There is no congestion inside a host,
// and the pacing timers of a system-wide BBR would delay bytes: messages of 1 MiB took 1.6 times as
// long.
constexpr char kWithoutPacing[] = "reno";

void set_options(int fd, bool one_host) {
  const int one = 1;
  ::setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof one);
  ::setsockopt(fd, IPPROTO_TCP, TCP_USER_TIMEOUT, &kPathTimeoutMs, sizeof kPathTimeoutMs);
  if (one_host) {
    ::setsockopt(fd, IPPROTO_TCP, TCP_CONGESTION, kWithoutPacing, sizeof kWithoutPacing - 1);
  }
}

int compare(const ibv_gid& a, const ibv_gid& b) { return std::memcmp(a.raw, b.raw, sizeof a.raw); }

// With a timeout of 0: forever.
Clock::duration retry_budget(const ibv_qp_attr& attributes) {
  if (attributes.timeout == 0) return Clock::duration::max();
  return std::max<Clock::duration>(ack_timeout(attributes.timeout) * (attributes.retry_cnt + 1),
                                   kLeastRetryTime);
}

}  // namespace

bool Connection::dials() const noexcept {
  const int order = compare(qp_.device.gid(), qp_.peer_gid());
  return order < 0 || (order == 0 && qp_.qp_num < qp_.attributes.dest_qp_num);
}

void Connection::expect_peer() noexcept {
  if (dials()) {
    dial();
  } else {
    phase_ = Phase::waiting;
  }
}

Hello Connection::own_hello() const noexcept {
  Hello hello{};
  std::memcpy(hello.magic, kHelloMagic, sizeof kHelloMagic);
  hello.source = qp_.device.gid();
  hello.destination = qp_.peer_gid();
  hello.source_qp = qp_.qp_num;
  hello.destination_qp = qp_.attributes.dest_qp_num;
  hello.source_psn = qp_.state == IBV_QPS_RTS ? qp_.attributes.sq_psn : kPsnUnknown;
  hello.destination_psn = qp_.attributes.rq_psn;
  return hello;
}

bool Connection::fits(const Hello& hello) const noexcept {
  const bool own_psn_fits =
      qp_.state != IBV_QPS_RTS || hello.destination_psn == qp_.attributes.sq_psn;
  const bool peer_psn_fits =
      hello.source_psn == kPsnUnknown || hello.source_psn == qp_.attributes.rq_psn;
  return own_psn_fits && peer_psn_fits && compare(hello.source, qp_.peer_gid()) == 0 &&
         hello.source_qp == qp_.attributes.dest_qp_num;
}

Verdict Connection::judge(const Hello& hello) const noexcept {
  const bool for_us = std::memcmp(hello.magic, kHelloMagic, sizeof kHelloMagic) == 0 &&
                      compare(hello.destination, qp_.device.gid()) == 0 &&
                      hello.destination_qp == qp_.qp_num && hello.zero == 0;
  if (!for_us) return Verdict::no;
  if (qp_.state == IBV_QPS_RESET || qp_.state == IBV_QPS_INIT) return Verdict::later;
  return phase_ == Phase::waiting && fits(hello) ? Verdict::yes : Verdict::no;
}

void Connection::confirm_own_psn() noexcept {
  if (!is_open() || heard_.destination_psn == qp_.attributes.sq_psn) return;
  close();
  expect_peer();
}

bool Connection::say_hello() noexcept {
  const Hello hello = own_hello();
  // A fresh socket accepts 64 bytes at once; otherwise it is broken.
  return ::send(fd_.get(), &hello, sizeof hello, MSG_NOSIGNAL | MSG_DONTWAIT) == sizeof hello;
}

void Connection::adopt(UniqueFd fd, const Hello& hello) noexcept {
  fd_ = std::move(fd);
  heard_ = hello;
  set_options(fd_.get(), on_one_host(qp_.device.gid(), qp_.peer_gid()));
  if (!say_hello() || !qp_.device.poller.add(fd_.get(), EPOLLIN, qp_)) {
    fd_.reset();  // the peer dials again
    return;
  }
  open();
}

void Connection::dial() noexcept {
  const sockaddr_in address = gid_address(qp_.peer_gid());
  if (qp_.device.guesses.wait(address.sin_addr)) return redial_later();
  fd_ = UniqueFd::open(
      [] { return ::socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0); });
  if (!fd_) return redial_later();
  set_options(fd_.get(), on_one_host(qp_.device.gid(), qp_.peer_gid()));
  heard_nbytes_ = 0;
  phase_ = Phase::dialling;
  const int result =
      ::connect(fd_.get(), reinterpret_cast<const sockaddr*>(&address), sizeof address);
  if ((result != 0 && errno != EINPROGRESS) || !qp_.device.poller.add(fd_.get(), EPOLLOUT, qp_)) {
    return redial_later();
  }
  if (result == 0) greet();
}

void Connection::greet() noexcept {
  if (!say_hello()) return redial_later();
  phase_ = Phase::greeting;
  qp_.device.poller.change(fd_.get(), EPOLLIN, qp_);
}

void Connection::hear_welcome() noexcept {
  auto* at = reinterpret_cast<std::byte*>(&heard_) + heard_nbytes_;
  const ssize_t nbytes = ::recv(fd_.get(), at, sizeof heard_ - heard_nbytes_, MSG_DONTWAIT);
  if (nbytes < 0 && (errno == EAGAIN || errno == EINTR)) return;
  if (nbytes <= 0) return redial_later();
  heard_nbytes_ += static_cast<std::size_t>(nbytes);
  if (heard_nbytes_ < sizeof heard_) return;
  phase_ = Phase::waiting;  // judge() requires this phase
  if (judge(heard_) != Verdict::yes) return redial_later();
  open();
}

void Connection::open() noexcept {
  phase_ = Phase::open;
  wants_write_ = false;
  backoff_ = milliseconds{0};
  action_ = give_up_ = Clock::time_point::max();
  qp_.device.timers.cancel(qp_);
  qp_.flush();  // sends what was posted meanwhile
}

void Connection::redial_later() noexcept {
  drop_socket();
  phase_ = Phase::backing_off;
  backoff_ = std::clamp(backoff_ * 2, kFirstBackoff, kLastBackoff);
  schedule(Clock::now() + backoff_);
}

void Connection::start_retry_budget() noexcept {
  if (is_open() || give_up_ != Clock::time_point::max()) return;
  const Clock::duration budget = retry_budget(qp_.attributes);
  if (budget == Clock::duration::max()) return;
  give_up_ = Clock::now() + budget;
  schedule(action_);
}

void Connection::schedule(Clock::time_point action) noexcept {
  action_ = action;
  const Clock::time_point due = std::min(action_, give_up_);
  if (due != Clock::time_point::max()) qp_.device.timers.set(qp_, due);
}

void Connection::on_ready() noexcept {
  switch (phase_) {
    case Phase::dialling: return greet();
    case Phase::greeting: return hear_welcome();
    case Phase::lingering:
      if (!discard_input()) close();
      return;
    default: return;
  }
}

void Connection::on_time() noexcept {
  const auto now = Clock::now();
  if (phase_ == Phase::lingering) return close();
  if (now >= give_up_) return qp_.fail({.kind = Failure::Kind::lost});
  if (phase_ == Phase::backing_off && now >= action_) {
    action_ = Clock::time_point::max();
    dial();
  }
  if (!is_open()) schedule(action_);
}

void Connection::want_write(bool wanted) noexcept {
  if (wanted == wants_write_ || !fd_) return;
  wants_write_ = wanted;
  watch();
}

void Connection::want_read(bool wanted) noexcept {
  if (wanted == wants_read_ || !fd_) return;
  wants_read_ = wanted;
  watch();
}

void Connection::watch() noexcept {
  std::uint32_t wanted = 0;
  if (wants_read_) wanted |= EPOLLIN;
  if (wants_write_) wanted |= EPOLLOUT;
  qp_.device.poller.change(fd_.get(), wanted, qp_);
}

void Connection::linger() noexcept {
  ::shutdown(fd_.get(), SHUT_WR);
  phase_ = Phase::lingering;
  want_write(false);
  want_read(true);
  give_up_ = Clock::time_point::max();
  schedule(Clock::now() + kLingerTime);
  on_ready();
}

bool Connection::discard_input() noexcept {
  constexpr int kReadsAtOnce = 16;
  std::array<std::byte, 16384> nowhere;
  for (int i = 0; i < kReadsAtOnce; ++i) {
    const ssize_t nbytes = ::recv(fd_.get(), nowhere.data(), nowhere.size(), MSG_DONTWAIT);
    if (nbytes > 0 || (nbytes < 0 && errno == EINTR)) continue;
    return nbytes < 0 && errno == EAGAIN;
  }
  return true;
}

void Connection::drop_socket() noexcept {
  if (fd_) qp_.device.poller.remove(fd_.get());
  fd_.reset();
  wants_write_ = false;
  wants_read_ = true;
}

void Connection::close() noexcept {
  drop_socket();
  phase_ = Phase::closed;
  backoff_ = milliseconds{0};
  action_ = give_up_ = Clock::time_point::max();
  qp_.device.timers.cancel(qp_);
}

}  // namespace zerohop::softhca
