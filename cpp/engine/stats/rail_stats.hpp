// Counters of one path; any thread may read them at any time.
#pragma once

#include <infiniband/verbs.h>

#include <atomic>
#include <cstdint>

namespace zerohop::engine {

struct RailStats {
  std::atomic<std::uint64_t> work_requests{0};  // posted
  std::atomic<std::uint64_t> doorbells{0};      // chains posted
  std::atomic<std::uint64_t> bytes_out{0};      // of writes and sends posted
  std::atomic<std::uint64_t> bytes_in{0};       // of reads posted, of recvs matched
  std::atomic<std::uint64_t> notifications_in{0};
  std::atomic<std::uint64_t> messages_in{0};
  std::atomic<std::uint64_t> queue_full{0};     // jobs that had to queue
  std::atomic<std::uint64_t> broken{0};         // queue pair errors
  std::atomic<std::uint64_t> sends_dropped{0};  // not yet received when the peer was lost

  void count(ibv_wr_opcode opcode, std::uint64_t nbytes) noexcept {
    (opcode == IBV_WR_RDMA_READ ? bytes_in : bytes_out)
        .fetch_add(nbytes, std::memory_order_relaxed);
  }
};

}  // namespace zerohop::engine
