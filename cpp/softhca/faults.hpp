// What goes wrong on purpose on a soft device: which faults, how often, and from which seed.
//
// As text, "seed=7,drop=0.01,delay=2ms": words and values with commas in between.
#pragma once

#include <infiniband/verbs.h>

#include <array>
#include <atomic>
#include <chrono>
#include <cstdint>
#include <string>
#include <string_view>

namespace zerohop::softhca {

// How a packet, a request or a device fares. Rates are probabilities, from 0 to 1, for each packet
// (of 64 KiB at most) that a queue pair sends; of rnr for each message that one receives.
struct Faults {
  std::uint64_t seed = 0;
  double drop = 0;
  double duplicate = 0;
  double corrupt = 0;
  double cut = 0;
  double partial = 0;
  double alter = 0;
  double rnr = 0;
  double delay_rate = 1;  // of packets that wait for `delay`
  std::chrono::nanoseconds delay{0};
  std::chrono::nanoseconds slow{0};  // between two looks at what has come
  std::uint64_t fail = 0;            // the request of each queue pair, from 1 on; 0: none
  ibv_wc_status fail_status = IBV_WC_GENERAL_ERR;
  std::uint64_t remove = 0;  // the request of the device at which that is gone; 0: none
  // How many the device has at most of what ibv_device_attr calls so; 0: as many as without. One
  // more is refused with ENOMEM; what is there already stays.
  std::uint64_t max_qp = 0;
  std::uint64_t max_cq = 0;
  std::uint64_t max_mr = 0;

  // Throws std::invalid_argument, naming what is wrong and what is known.
  static Faults parse(std::string_view text);
  std::string text() const;  // what differs from the defaults, in a form that parse() takes
  bool any() const noexcept;
  bool on_queue_pairs() const noexcept;  // any but the limits of the device
};

std::string_view status_word(ibv_wc_status status) noexcept;  // "RETRY_EXC_ERR"

// What happened, counted for a device: what it did wrong on purpose, and what it found wrong in the
// packets that came.
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
  // What went wrong with requests and packets on purpose, "drop 3, cut 1"; empty: nothing has.
  std::string text() const;
};

// Numbers that depend on nothing but the seed and what they are asked for: neither on the clock nor
// on what was asked before.
class Dice {
 public:
  Dice(std::uint64_t seed, std::uint64_t queue_pair) noexcept
      : key_(mixed(mixed(seed) ^ queue_pair)) {}

  // What is asked for: `what` of the `index`-th of a `kind`, its `part` and `attempt`.
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
