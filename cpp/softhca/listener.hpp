// The TCP listener of one device context, and the strangers who have connected but are not yet
// known.
//
// A stranger must produce a complete hello in time. If it fits a queue pair that expects it, the
// queue pair adopts the connection; if it names a queue pair that was not told its peer yet, it is
// parked until the owner catches up; all others are closed without a word. Numbers and times are
// bounded.
#pragma once

#include <netinet/in.h>

#include <atomic>
#include <list>

#include "base/unique_fd.hpp"
#include "softhca/hello.hpp"
#include "softhca/poller.hpp"
#include "softhca/timers.hpp"

namespace zerohop::softhca {

class Context;
class QueuePair;

class Listener final : public Watched, public Timed {
 public:
  Listener(Context& context, in_addr address);  // throws Error
  ~Listener();
  Listener(const Listener&) = delete;
  Listener& operator=(const Listener&) = delete;

  const ibv_gid& gid() const noexcept { return gid_; }

  // Gives `qp`, which has just been told its peer, the parked connection of that peer if there is
  // one. Called with Context::control held.
  void claim(QueuePair& qp) noexcept;

  // How many connections were closed because their hello was late, malformed or fitted nobody.
  std::uint64_t rejected() const noexcept { return rejected_.load(std::memory_order_relaxed); }

  void on_ready(std::uint32_t ready) noexcept override;
  void on_time() noexcept override;

 private:
  struct Stranger final : Watched {
    Stranger(Listener& owner, UniqueFd connection) : listener(owner), fd(std::move(connection)) {}
    void on_ready(std::uint32_t) noexcept override { listener.hear(*this); }

    Listener& listener;
    UniqueFd fd;  // closed or given away: empty
    Hello hello{};
    std::size_t heard = 0;  // bytes of the hello
    Clock::time_point came{};
    Clock::time_point deadline{};
    std::uint64_t closed_in = 0;  // Poller::round()
    bool parked() const noexcept { return fd && heard == sizeof(Hello); }
  };

  void admit(UniqueFd connection) noexcept;
  void make_room() noexcept;
  void hear(Stranger& stranger) noexcept;
  void introduce(Stranger& stranger) noexcept;
  static bool is_there(const Stranger& stranger) noexcept;
  void reject(Stranger& stranger) noexcept;
  UniqueFd release(Stranger& stranger) noexcept;
  void bury() noexcept;
  void rest() noexcept;
  void wake_at(Clock::time_point time) noexcept;

  Context& context_;
  UniqueFd fd_;
  ibv_gid gid_{};
  std::list<Stranger> strangers_;  // oldest first; guarded by Context::control, as the next
  std::size_t open_ = 0;           // of them, whose connection is still here
  bool resting_ = false;           // out of descriptors: not accepting for a moment
  bool timing_ = false;            // a wake-up is pending
  std::atomic<std::uint64_t> rejected_{0};
};

}  // namespace zerohop::softhca
