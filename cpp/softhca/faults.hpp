// The injected faults of a soft device: which ones, how often, and from which seed.
//
// As text, "seed=7,drop=0.01,delay=2ms": words with values, separated by commas.
#pragma once

#include <infiniband/verbs.h>

#include <array>
#include <atomic>
#include <chrono>
#include <cstdint>
#include <string>
#include <string_view>

namespace zerohop::softhca {

// Rates are probabilities from 0 to 1: for each packet (at most 64 KiB) that a queue pair sends;
// for rnr, for each message that it receives.
struct Faults {
  std::uint64_t seed = 0;
  double drop = 0;
  double duplicate = 0;
  double corrupt = 0;
  double cut = 0;
  double partial = 0;
  double alter = 0;
  double rnr = 0;
  double delay_rate = 1;  // of packets delayed by `delay`
  std::chrono::nanoseconds delay{0};
  std::chrono::nanoseconds slow{0};  // pause between two reads of the socket
  std::uint64_t fail = 0;            // which request of each queue pair fails, from 1 on; 0: none
  ibv_wc_status fail_status = IBV_WC_GENERAL_ERR;
  std::uint64_t remove = 0;  // at which request of the device it is removed; 0: never
  // Lower limits for the values of that name in ibv_device_attr; 0: the usual limit. Further
  // objects are refused with ENOMEM; existing ones stay.
  std::uint64_t max_qp = 0;
  std::uint64_t max_cq = 0;
  std::uint64_t max_mr = 0;

  // Throws std::invalid_argument, naming the error and the known words.
  static Faults parse(std::string_view text);
  std::string text() const;  // values that differ from the defaults, readable by parse()
  bool any() const noexcept;
  bool on_queue_pairs() const noexcept;  // any except the limits of the device
};

std::string_view status_word(ibv_wc_status status) noexcept;  // "RETRY_EXC_ERR"

// What is counted for a device: the faults it injected, and the errors it found in received
// packets.
enum class Fault : std::uint8_t {
  drop,
  duplicate,
  corrupt,
  cut,
  partial,
  delay,
  slow,
  rnr,
  fail,
  remove,
  corrupt_found,
  duplicate_found,
  alter,
  max_qp,
  max_cq,
  max_mr,
};
inline constexpr std::size_t kFaults = 16;
const char* fault_name(Fault fault) noexcept;

struct FaultCounts {
  std::array<std::atomic<std::uint64_t>, kFaults> counts{};

  void add(Fault fault) noexcept {
    counts[static_cast<std::size_t>(fault)].fetch_add(1, std::memory_order_relaxed);
  }
  std::uint64_t of(Fault fault) const noexcept {
    return counts[static_cast<std::size_t>(fault)].load(std::memory_order_relaxed);
  }
  // The injected faults of requests and packets, "drop 3, cut 1"; empty: none.
  std::string text() const;
};

// Random numbers that depend only on the seed and the Throw: neither on the clock nor on earlier
// calls.
class Dice {
 public:
  Dice(std::uint64_t seed, std::uint64_t queue_pair) noexcept
      : key_(mixed(mixed(seed) ^ queue_pair)) {}

  // Identifies a number: `what` of the `index`-th of a `kind`, its `part` and `attempt`.
  struct Throw {
    std::uint8_t what;
    std::uint8_t kind;
    std::uint32_t index;
    std::uint32_t part;
    std::uint32_t attempt;
  };
  std::uint64_t bits(const Throw& asked) const noexcept {
    const std::uint64_t name = std::uint64_t{asked.what} << 40 | std::uint64_t{asked.kind} << 32;
    const std::uint64_t place = std::uint64_t{asked.part} << 32 | asked.attempt;
    return mixed(mixed(key_ ^ (name | asked.index)) ^ place);
  }
  bool hits(double rate, const Throw& asked) const noexcept {
    constexpr double kScale = 0x1p-53;
    return rate > 0 && static_cast<double>(bits(asked) >> 11) * kScale < rate;
  }

 private:
  // The finaliser of splitmix64 (Steele, Lea, Flood: Fast Splittable Pseudorandom Number
  // Generators, 2014).
  static std::uint64_t mixed(std::uint64_t x) noexcept {
    x += 0x9e3779b97f4a7c15;
    x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9;
    x = (x ^ (x >> 27)) * 0x94d049bb133111eb;
    return x ^ (x >> 31);
  }

  std::uint64_t key_;
};

}  // namespace zerohop::softhca
