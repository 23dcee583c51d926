// Counters of one path; read at any time by anyone.
#pragma once

#include <atomic>
#include <cstdint>

namespace zerohop::engine {

struct PathStats {
  std::atomic<std::uint64_t> work_requests{0};  // posted
  std::atomic<std::uint64_t> doorbells{0};      // chains posted
  std::atomic<std::uint64_t> bytes_out{0};      // of writes and sends handed over
  std::atomic<std::uint64_t> bytes_in{0};       // of reads handed over, of recvs matched
  std::atomic<std::uint64_t> notifications_in{0};
  std::atomic<std::uint64_t> messages_in{0};
  std::atomic<std::uint64_t> queue_full{0};  // jobs that had to wait in line
  std::atomic<std::uint64_t> broken{0};      // queue pair errors
};

}  // namespace zerohop::engine
