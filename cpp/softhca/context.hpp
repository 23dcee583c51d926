// One opening of a soft device: its listener, tables, event queues and progress thread.
//
// Locks, in the order in which they may be taken:
//   1 Context::control      queue pair table, listener, sweeps over the connections; keeps every
//                           queue pair alive that a sweep looks at
//   1b Doorbells            its list; keeps every queue pair alive whose doorbell it looks at
//   2 QueuePair::lock       everything of one queue pair, and its connection
//   3 Context::copied_atomics, then a lane of a Copier (gpu/copier.hpp): waited for, given back by
//     threads that wait for nothing but copies while they have it
//   3 CompletionQueue       its ring (lock_hot takes 2 after 3, but only by try_lock)
//   4 CompletionChannel, AsyncEvents, MemoryTable, Timers, Progress: leaves; nothing is taken after
//   them
// The data path (post, poll) takes 2 and below; 1 only by try_lock.
#pragma once

#include <infiniband/verbs.h>

#include <atomic>
#include <cerrno>
#include <mutex>
#include <unordered_map>

#include "base/fork.hpp"
#include "softhca/async_events.hpp"
#include "softhca/device.hpp"
#include "softhca/device_faults.hpp"
#include "softhca/doorbells.hpp"
#include "softhca/listener.hpp"
#include "softhca/memory_table.hpp"
#include "softhca/poller.hpp"
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

  // True in a child made by fork(2): nothing of this context may be touched there.
  bool forked() const noexcept { return generation_ != fork_generation(); }
  // Why nothing can be made or connected here any more: an errno, or 0.
  int obstacle() const noexcept { return forked() ? ENODEV : faults.gone() ? EIO : 0; }
  const ibv_gid& gid() const noexcept { return listener.gid(); }

  std::atomic<int> users{0};  // protection domains, channels and completion queues
  std::atomic<std::uint32_t> direct_completion_queues{0};  // so far: they are numbered

  std::mutex control;
  std::unordered_map<std::uint32_t, QueuePair*> queue_pairs;  // by number; guarded by `control`
  std::uint64_t queue_pairs_made = 0;                         // likewise

  MemoryTable memory;
  std::mutex copied_atomics;  // makes atomics on memory behind a Copier atomic
  AsyncEvents events;
  Poller poller;
  Timers timers;
  DeviceFaults faults;
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
