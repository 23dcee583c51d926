// Splits a copy between two arrays of equal shape into the longest pieces that are contiguous in
// both.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>

#include "base/layout.hpp"

namespace zerohop {

// nbytes bytes at a_address correspond to nbytes bytes at b_address; nbytes is never 0.
struct Run {
  std::uint64_t a_address;
  std::uint64_t b_address;
  std::uint64_t nbytes;
};

// Iterates over the runs in unspecified order; each pair of elements occurs in one run.
class Runs {
 public:
  // Shapes and item sizes must be equal (else std::invalid_argument); both layouts are validated.
  Runs(const Layout& a, const Layout& b);

  // False when there is no further run. Neither allocates nor throws.
  bool next(Run& run) noexcept;

  // Skips that many runs, or all that are left.
  void skip(std::uint64_t runs) noexcept;

  std::uint64_t count() const noexcept { return count_; }  // total; 0 without elements
  std::uint64_t run_nbytes() const noexcept {
    return run_nbytes_;
  }  // every run has the same length

 private:
  // One dimension that could not be merged into the run, outermost first.
  struct Axis {
    std::int64_t size;
    std::int64_t a_stride;
    std::int64_t b_stride;
    std::int64_t index;
  };

  void add_axes(const Layout& a, const Layout& b) noexcept;
  void merge_axes() noexcept;
  void advance() noexcept;

  std::array<Axis, Dims::kMax> axes_;  // the first naxes_ are in use
  std::size_t naxes_ = 0;
  std::uint64_t a_address_;
  std::uint64_t b_address_;
  std::uint64_t run_nbytes_;
  std::uint64_t count_ = 0;
  std::uint64_t left_ = 0;
};

}  // namespace zerohop
