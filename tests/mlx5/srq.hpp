// Receives that a program has posted: into a shared receive queue, whose entries are a linked list,
// or into the receive queue of a queue pair, whose entries are a ring.
#pragma once

#include <infiniband/verbs.h>

#include <cstddef>
#include <cstdint>
#include <mutex>

#include "event_file.hpp"
#include "queue_memory.hpp"

namespace zerohop::mlx5sim {

// One receive, as an entry of 16-byte segments describes it.
struct Receive {
  static constexpr std::size_t kMostElements = 64;

  // `most` segments at `offset`.
  void read(const QueueMemory& memory, std::size_t offset, std::size_t most);
  std::size_t count() const noexcept { return static_cast<std::size_t>(work.num_sge); }

  ibv_recv_wr work{};
  ibv_sge elements[kMostElements];
};

class Srq {
 public:
  Srq(QueueMemory entries, std::uint32_t entry_nbytes, QueueMemory record, ibv_srq* below,
      std::uint32_t count, std::uint64_t handle) noexcept
      : soft(below),
        most(count),
        user_handle(handle),
        entries_(std::move(entries)),
        entry_nbytes_(entry_nbytes),
        record_(std::move(record)) {}
  Srq(const Srq&) = delete;
  Srq& operator=(const Srq&) = delete;

  // Hands the software HCA what was posted since. Whether there was anything. Any thread may call
  // it.
  bool take();
  void read(std::uint16_t index, Receive& to) const;
  // One of them was used. Whether that leaves fewer than the limit, which is then gone.
  bool was_used() noexcept;

  ibv_srq* const soft;
  const std::uint32_t most;
  const std::uint64_t user_handle;
  EventSource async;
  std::uint32_t limit = 0;  // 0: none
  std::uint32_t users = 0;  // queue pairs

 private:
  const QueueMemory entries_;
  const std::uint32_t entry_nbytes_;
  const QueueMemory record_;  // how many were posted: 16 bits
  std::mutex mutex_;          // of what follows
  std::uint16_t taken_ = 0;
  std::uint16_t next_ = 0;  // index of the next entry
  std::uint32_t there_ = 0;
};

}  // namespace zerohop::mlx5sim
