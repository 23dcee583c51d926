// Cuts a transfer into shares, one per rail.
#pragma once

#include <algorithm>
#include <array>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <span>

#include "engine/rail.hpp"

namespace zerohop::engine {

// The size at which two rails are as fast as one: below, the second completion costs more than the
// second wire gains.
inline constexpr std::uint64_t kDefaultStripeBytes = std::uint64_t{1} << 20;

// Bytes [begin, begin + nbytes) of all the data of a transfer.
struct Stripe {
  RailIndex rail = 0;
  std::uint64_t begin = 0;
  std::uint64_t nbytes = 0;
};

class Striping {
 public:
  // For more than `threshold` bytes: one share on each rail of `rails`, as equal as whole units of
  // 4 KiB allow. Otherwise all on `nearest`, or on the first rail if `nearest` is not among them.
  // `rails` is not empty.
  Striping(std::uint64_t nbytes, RailMask rails, std::uint64_t threshold,
           RailIndex nearest) noexcept {
    const auto several = static_cast<std::uint64_t>(std::popcount(rails));
    if (nbytes <= threshold || several < 2) {
      const bool is_there = ((rails >> nearest) & 1) != 0;
      const auto first = static_cast<RailIndex>(std::countr_zero(rails));
      add({is_there ? nearest : first, 0, nbytes});
      return;
    }
    constexpr std::uint64_t kUnit = 4096;  // a packet of the largest MTU, and a page
    const std::uint64_t share = ((nbytes + several - 1) / several + kUnit - 1) / kUnit * kUnit;
    for (std::uint64_t begin = 0; begin < nbytes; begin += share, rails &= rails - 1) {
      add({static_cast<RailIndex>(std::countr_zero(rails)), begin,
           std::min(share, nbytes - begin)});
    }
  }

  std::span<const Stripe> stripes() const noexcept { return {stripes_.data(), count_}; }
  RailMask rails() const noexcept {
    RailMask mask = 0;
    for (const Stripe& stripe : stripes()) mask |= RailMask{1} << stripe.rail;
    return mask;
  }

 private:
  void add(const Stripe& stripe) noexcept { stripes_[count_++] = stripe; }

  std::array<Stripe, kMaxRails> stripes_;
  std::size_t count_ = 0;
};

}  // namespace zerohop::engine
