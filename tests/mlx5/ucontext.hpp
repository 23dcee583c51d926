// An open simulated device: what the kernel keeps behind one open /dev/infiniband/uverbsN, and the
// adapter behind that. Its thread reads what was announced by doorbells, hands it to the software
// HCA, and writes completions into the queues of the program.
#pragma once

#include <infiniband/verbs.h>

#include <atomic>
#include <cerrno>
#include <chrono>
#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <thread>
#include <unordered_map>

#include "base/bell.hpp"
#include "base/fork.hpp"
#include "batch.hpp"
#include "call.hpp"
#include "cq.hpp"
#include "event_file.hpp"
#include "peer_memory.hpp"
#include "qp.hpp"
#include "srq.hpp"
#include "uar.hpp"
#include "watch.hpp"

namespace zerohop::mlx5sim {

// Objects by their handles.
template <typename Object>
class Table {
 public:
  std::uint32_t add(std::unique_ptr<Object> object) {
    const std::uint32_t handle = next_++;
    objects_.emplace(handle, std::move(object));
    return handle;
  }
  Object& at(std::uint32_t handle) const {
    const auto found = objects_.find(handle);
    if (found == objects_.end()) throw Refused{EINVAL};
    return *found->second;
  }
  void remove(std::uint32_t handle) { objects_.erase(handle); }
  auto begin() const noexcept { return objects_.begin(); }
  auto end() const noexcept { return objects_.end(); }

 private:
  std::map<std::uint32_t, std::unique_ptr<Object>> objects_;
  std::uint32_t next_ = 1;
};

struct Pd {
  ibv_pd* soft;
};
struct Mr {
  ibv_mr* soft;
};
struct Ah {};

// Memory for queues that a program lays out by itself (DEVX): its own, or a dma-buf's.
struct Umem {
  Umem(QueueMemory whole, std::size_t size, bool mapping) noexcept
      : memory(std::move(whole)), nbytes(size), mapped(mapping) {}
  ~Umem();
  Umem(const Umem&) = delete;
  Umem& operator=(const Umem&) = delete;

  // The place of that many bytes in it; throws Refused.
  QueueMemory place(std::uint64_t offset, std::uint64_t size) const;

  const QueueMemory memory;
  const std::size_t nbytes;
  const bool mapped;  // here, and to be unmapped
};

// What was made by DEVX: a completion queue or a queue pair among the others.
struct DevxObject {
  bool is_cq;
  std::uint32_t handle;
  std::uint32_t umem;  // of its ring
  std::uint32_t record_umem;
};

class Ucontext {
 public:
  explicit Ucontext(int device);  // throws Error or Refused
  ~Ucontext();
  Ucontext(const Ucontext&) = delete;
  Ucontext& operator=(const Ucontext&) = delete;

  // RDMA_VERBS_IOCTL. 0 or errno.
  int command(ib_uverbs_ioctl_hdr& header) noexcept;
  void* map(void* address, std::size_t nbytes, int protection, off_t offset) noexcept;
  // For tests: an internal error of each queue pair that is ready to send. How many there were.
  int break_queue_pairs();
  // In a child made by fork(2) nothing of it works.
  bool forked() const noexcept { return generation_ != fork_generation(); }

  // For commands, which hold the lock.
  const int device;  // its number
  Table<Pd> pds;
  Table<Mr> mrs;
  Table<Ah> ahs;
  Table<Cq> cqs;
  Table<Srq> srqs;
  Table<Qp> qps;
  Table<Umem> umems;
  Table<DevxObject> devx;
  PeerMemory peer_memory;
  UarPages uars;
  ibv_context* soft = nullptr;
  ibv_cq* soft_cq = nullptr;       // of all queue pairs
  std::weak_ptr<EventFile> async;  // until the program closes it
  std::unordered_map<std::uint32_t, Qp*> by_number;

  // An asynchronous event of the kernel (ibv_event_type).
  void raise(std::uint32_t type, std::uint64_t element, EventSource* source);
  // How many of `source` were read; the others are withdrawn.
  std::uint32_t forget(EventSource& source) noexcept;
  // What is complete now, into the queues of the program. Whether there was anything.
  bool deliver();
  // The program learns that the queue pair is in error.
  void fail(Qp& qp);
  // Of events of the software HCA, those of the program.
  void pass_on_events();

 private:
  void run() noexcept;
  bool look();  // once: whether there was anything to do
  bool step();
  bool answer_doorbells();
  void complete(const ibv_wc& completion);
  void pass_on(ibv_event_type type, Qp& qp);
  void overrun(Cq& cq, Qp& qp);
  void look_outside();  // whether anything was done to the device
  void remove();
  void arm();
  void sleep(std::chrono::nanoseconds most) noexcept;
  void close_all() noexcept;

  unsigned generation_ = fork_generation();
  ibv_comp_channel* soft_channel_ = nullptr;
  bool armed_ = false;  // soft_cq
  Watch watch_;
  bool port_up_;
  bool removed_ = false;
  unsigned looks_ = 0;
  Batch batch_;
  Bell bell_;
  std::atomic<int> waiting_{0};  // commands
  std::atomic<bool> stopping_{false};
  std::mutex mutex_;
  std::thread thread_;
};

// Carries out one command. Throws Refused.
void carry_out(Ucontext& context, Call& call);

}  // namespace zerohop::mlx5sim
