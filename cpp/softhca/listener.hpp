// The TCP listener of one device context, and its pending connections, whose peer is not yet known.
// It belongs to the device, whose thread serves it: Endpoints share it.
//
// Each connection must send a complete hello in time. If it fits a queue pair that expects it, the
// queue pair adopts the connection. If its queue pair does not know its peer yet, the connection is
// parked until the owner sets it. All others are closed silently. Numbers and times are bounded.
#pragma once

#include <netinet/in.h>

#include <atomic>
#include <list>

#include "base/acceptor.hpp"
#include "base/unique_fd.hpp"
#include "softhca/epoll.hpp"
#include "softhca/hello.hpp"
#include "softhca/timers.hpp"

namespace zerohop::softhca {

class Context;
class QueuePair;

class Listener final : public Watched, public Timed, private Acceptor::Owner {
 public:
  Listener(Context& context, in_addr address);  // throws Error
  ~Listener();
  Listener(const Listener&) = delete;
  Listener& operator=(const Listener&) = delete;

  const ibv_gid& gid() const noexcept { return gid_; }

  // Gives `qp`, whose peer was just set, the parked connection of that peer if there is one. Called
  // with Context::control held.
  void claim(QueuePair& qp) noexcept;

  // How many connections were closed because their hello was late, malformed or matched no queue
  // pair.
  std::uint64_t rejected() const noexcept { return rejected_.load(std::memory_order_relaxed); }

  void on_ready(std::uint32_t ready) noexcept override;
  void on_time() noexcept override;

 private:
  struct Pending final : Watched {
    Pending(Listener& owner, UniqueFd connection) : listener(owner), fd(std::move(connection)) {}
    void on_ready(std::uint32_t) noexcept override { listener.hear(*this); }

    Listener& listener;
    UniqueFd fd;  // empty: closed or handed over
    Hello hello{};
    std::size_t heard = 0;        // bytes of the hello received
    std::uint64_t closed_in = 0;  // value of Epoll::round()
    bool parked() const noexcept { return fd && heard == sizeof(Hello); }
  };

  void admit(UniqueFd connection) override;
  void turn_away(int fd, const char* why) noexcept override;
  void watch_listener(bool watched) noexcept override;

  void hear(Pending& pending) noexcept;
  void introduce(Pending& pending) noexcept;
  bool is_welcome(const Pending& pending) const noexcept;
  void reject(Pending& pending) noexcept;
  UniqueFd release(Pending& pending) noexcept;
  void bury() noexcept;
  void look() noexcept;

  Context& context_;
  Acceptor acceptor_;           // guarded by Context::control, like the next two
  std::list<Pending> pending_;  // oldest first
  Acceptor::Clock::time_point looks_at_ = Acceptor::Clock::time_point::max();  // wake-up pending
  ibv_gid gid_{};
  std::atomic<std::uint64_t> rejected_{0};
};

}  // namespace zerohop::softhca
