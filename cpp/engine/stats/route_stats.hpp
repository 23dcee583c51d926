// Counters of the transfers that this process began over one route; any thread may read them.
#pragma once

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <utility>
#include <vector>

#include "base/histogram.hpp"
#include "base/locks.hpp"

namespace zerohop::engine {

enum class Operation : std::uint8_t { write, read, atomic, send, recv, notify };
constexpr std::size_t kOperations = 6;

struct RouteStats {
  using Counter = std::atomic<std::uint64_t>;
  std::string peer{};                             // set before the first transfer
  std::array<Counter, kOperations> operations{};  // begun; notify: those without data
  Counter notifications{0};                       // put after data, or alone
  Counter bytes_out{0};                           // of writes and sends
  Counter bytes_in{0};                            // of reads; of recvs when they end
  Counter failures{0};                            // ended with an error, or refused once counted
  std::atomic<std::int64_t> under_way{0};         // begun and not ended
  std::atomic<bool> logged{false};                // logged: that the route is taken, and why
  std::atomic<bool> logged_failure{false};  // logged: a failure that the program did not query
  // From when the call had a route to when this process saw it done; successful calls only.
  std::array<Histogram, kOperations> latencies{};

  void begin(Operation operation, std::uint64_t nbytes) noexcept {
    add(operations[static_cast<std::size_t>(operation)], 1);
    if (operation == Operation::write || operation == Operation::send) add(bytes_out, nbytes);
    if (operation == Operation::read) add(bytes_in, nbytes);
  }
  void end(Operation operation, std::uint64_t nanoseconds, std::uint64_t times = 1) noexcept {
    latencies[static_cast<std::size_t>(operation)].add(nanoseconds, times);
  }
  // Operations that take little longer than two clock readings are sampled: returns how many
  // operations the next sample stands for, 0 if it is not measured. The choice is pseudo-random, so
  // that it does not keep step with a program that repeats itself.
  std::uint64_t times_of_next(Operation operation) const noexcept {
    constexpr std::uint64_t kEach = 1024, kBits = 3;
    const std::uint64_t begun =
        operations[static_cast<std::size_t>(operation)].load(std::memory_order_relaxed);
    if (begun < kEach) return 1;
    const std::uint64_t mixed = begun * 0x9E3779B97F4A7C15;  // Knuth: 2**64 / golden ratio
    return mixed >> (64 - kBits) == 0 ? std::uint64_t{1} << kBits : 0;
  }
  void add(const RouteStats& other) noexcept;
  static void add(Counter& counter, std::uint64_t count) noexcept {
    counter.fetch_add(count, std::memory_order_relaxed);
  }
};

inline void RouteStats::add(const RouteStats& other) noexcept {
  for (std::size_t i = 0; i < kOperations; ++i) {
    add(operations[i], other.operations[i]);
    latencies[i].add(other.latencies[i]);
  }
  for (const auto counter : {&RouteStats::notifications, &RouteStats::bytes_out,
                             &RouteStats::bytes_in, &RouteStats::failures}) {
    add(this->*counter, other.*counter);
  }
  under_way.fetch_add(other.under_way, std::memory_order_relaxed);
}

// The routes of one Peer, by kind and device.
class RouteBook {
 public:
  using Name = std::pair<std::string, std::string>;  // kind and device of a Route
  using Row = std::pair<Name, std::shared_ptr<const RouteStats>>;

  std::shared_ptr<RouteStats> of(const std::string& kind, const std::string& device) {
    const std::lock_guard lock(mutex_);
    auto& stats = rows_[{kind, device}];
    if (!stats) {
      stats = std::make_shared<RouteStats>();
      stats->peer = peer_;
    }
    return stats;
  }
  // Call before anything is counted.
  void set_peer(const std::string& name) {
    const std::lock_guard lock(mutex_);
    peer_ = name;
    for (const auto& [route, stats] : rows_) stats->peer = name;
  }
  std::vector<Row> rows() const {
    const std::lock_guard lock(mutex_);
    return {rows_.begin(), rows_.end()};
  }

 private:
  mutable Mutex<Rank::route_stats> mutex_;
  std::map<Name, std::shared_ptr<RouteStats>> rows_;
  std::string peer_;
};

}  // namespace zerohop::engine
