// One opening of a soft device: its listener, tables, event queues and progress thread.
//
// The order of locks is in base/lock_order.hpp. QueuePair::lock guards everything of one queue pair
// and its connection. A thread that waits for a lane of a Copier (gpu/copier.hpp) holds at most
// copied_atomics, and a thread that has a lane waits only for copies; the Copier of a placed ring
// (direct.hpp) has more lanes than the ring has users. The data path (post, poll) takes
// QueuePair::lock and the locks after it; Context::control only by try_lock.
#pragma once

#include <infiniband/verbs.h>

#include <atomic>
#include <cerrno>
#include <unordered_map>

#include "base/fork.hpp"
#include "base/locks.hpp"
#include "softhca/async_events.hpp"
#include "softhca/device.hpp"
#include "softhca/device_faults.hpp"
#include "softhca/doorbells.hpp"
#include "softhca/epoll.hpp"
#include "softhca/guesses.hpp"
#include "softhca/listener.hpp"
#include "softhca/memory_table.hpp"
#include "softhca/progress.hpp"
#include "softhca/timers.hpp"

namespace zerohop::softhca {

class QueuePair;

class Context : public ibv_context {
 public:
  explicit Context(const SoftDevice& device);  // throws Error
  ~Context();
  Context(const Context&) = delete;
  Context& operator=(const Context&) = delete;
  static Context& of(ibv_context* context) noexcept { return *static_cast<Context*>(context); }

  // True in a child made by fork(2), which must not touch anything of this context.
  bool forked() const noexcept { return generation_ != fork_generation(); }
  // Why nothing can be created or connected here any more: an errno, or 0.
  int obstacle() const noexcept { return forked() ? ENODEV : faults.gone() ? EIO : 0; }
  const ibv_gid& gid() const noexcept { return listener.gid(); }

  std::atomic<int> users{0};  // protection domains, channels and completion queues
  std::atomic<std::uint32_t> completion_queues{0};
  std::atomic<std::uint32_t> direct_completion_queues{0};  // created so far; gives their numbers

  Mutex<Rank::softhca_control> control;
  std::unordered_map<std::uint32_t, QueuePair*> queue_pairs;  // by number; guarded by `control`
  std::uint64_t queue_pairs_made = 0;                         // likewise

  MemoryTable memory;
  Mutex<Rank::softhca_copied_atomics>
      copied_atomics;  // serialises atomics on memory behind a Copier
  AsyncEvents events;
  Epoll poller;
  Timers timers;
  DeviceFaults faults;
  Guesses guesses;
  Listener listener;
  Doorbells doorbells;
  Progress progress;  // last: its thread uses all the others

 private:
  unsigned generation_ = fork_generation();
};

// The members of driver::Verbs.
ibv_context* open_device(ibv_device* device);
int close_device(ibv_context* context);

}  // namespace zerohop::softhca
