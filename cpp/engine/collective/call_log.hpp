// The record of this rank's collective calls and barriers, in memory that the other ranks can read.
//
// Every call has a digest of itself and of all earlier calls, which travels with its messages.
// Ranks whose digests differ have made different calls, possibly long ago; the records show which.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string_view>
#include <vector>

#include "engine/collective/reduction.hpp"

namespace zerohop::engine::collective {

enum class Kind : std::uint8_t {
  broadcast,
  scatter,
  gather,
  all_gather,
  all_to_all,
  send_recv,
  reduce,
  all_reduce,
  reduce_scatter,
  scan,
  barrier,
};
inline constexpr std::uint8_t kKinds = static_cast<std::uint8_t>(Kind::barrier) + 1;
inline constexpr std::array<std::string_view, kKinds> kKindNames{
    "broadcast", "scatter",    "gather",         "all_gather", "all_to_all", "send_recv",
    "reduce",    "all_reduce", "reduce_scatter", "scan",       "barrier"};

inline constexpr std::int32_t kNoRoot = -1;
inline constexpr std::uint64_t kAnyBytes = ~std::uint64_t{0};  // the size differs among ranks
using DTypeName = std::array<char, 24>;                        // padded with zeros

// What must be equal on all ranks.
struct Call {
  Kind kind{};
  Op op{};  // of a reduction
  std::array<std::uint8_t, 2> unused{};
  std::int32_t root = kNoRoot;
  std::uint64_t nbytes = kAnyBytes;
  DTypeName dtype{};
};
static_assert(sizeof(Call) == 40, "it lies in memory that other processes read");

struct CallRecord {
  std::uint64_t position = 0;  // among all calls, from 1
  std::uint64_t number = 0;    // among the collectives, or the barriers
  std::uint32_t digest = 0;
  std::uint32_t checksum = 0;  // of the record, without this field
  Call call;
};
static_assert(sizeof(CallRecord) == 64, "it lies in memory that other processes read");

// One thread at a time.
class CallLog {
 public:
  static constexpr std::size_t kRecords = 64;  // the latest calls

  // memory: room for kRecords, all zero; `owner` keeps it alive.
  CallLog(std::span<std::byte> memory, std::shared_ptr<void> owner);

  // Numbers the call: collectives from 1, and barriers separately. factor: of Op::premul_sum; it
  // must be equal on all ranks, too.
  CallRecord add(const Call& call, double factor = 1);

  // No more collectives follow: later calls are only barriers.
  void end() noexcept { over_ = true; }
  bool is_over() const noexcept { return over_; }

  // The records present. Skips those being written or never written.
  static std::vector<CallRecord> read(std::span<const std::byte> memory);
  std::vector<CallRecord> read() const { return read(memory_); }

 private:
  const std::span<std::byte> memory_;
  const std::shared_ptr<void> owner_;
  std::uint64_t position_ = 0;
  std::uint64_t collectives_ = 0, barriers_ = 0;
  std::uint32_t digest_ = 0;
  bool over_ = false;
};

}  // namespace zerohop::engine::collective
