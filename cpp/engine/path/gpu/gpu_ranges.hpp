// The ranges of two arrays, as addresses of the GPU that copies between them.
#pragma once

#include <algorithm>
#include <cstdint>
#include <span>

#include "base/runs.hpp"
#include "gpu/copy_piece.hpp"

namespace zerohop::engine {

// Addresses [begin, end) of an array in its owner's address space. A copy stays inside.
struct GpuSpot {
  std::uint64_t begin = 0;
  std::uint64_t end = UINT64_MAX;
  std::uint64_t shift = 0;  // added to get the GPU's address; wraps
};

class GpuRanges {
 public:
  // Spots of the local and the remote array: not empty, in order, without gaps. They must outlive
  // this object.
  GpuRanges(std::span<const GpuSpot> local, std::span<const GpuSpot> remote, bool is_write)
      : a_(local), b_(remote), is_write_(is_write) {}

  // Cuts off the front of the run, which lies in the spots: the part within one spot of each, at
  // most `most` bytes.
  gpu::CopyPiece cut(Run& run, std::uint64_t most) {
    const GpuSpot& a = a_.find(run.a_address);
    const GpuSpot& b = b_.find(run.b_address);
    const std::uint64_t nbytes =
        std::min({run.nbytes, a.end - run.a_address, b.end - run.b_address, most});
    const std::uint64_t here = run.a_address + a.shift;
    const std::uint64_t there = run.b_address + b.shift;
    const gpu::CopyPiece piece{
        .from = is_write_ ? here : there, .to = is_write_ ? there : here, .nbytes = nbytes};
    run = {run.a_address + nbytes, run.b_address + nbytes, run.nbytes - nbytes};
    return piece;
  }

 private:
  class Side {
   public:
    explicit Side(std::span<const GpuSpot> spots) : spots_(spots), last_(spots.front()) {}
    const GpuSpot& find(std::uint64_t address) {
      if (address < last_.begin || address >= last_.end) {
        last_ = *std::ranges::upper_bound(spots_, address, {}, &GpuSpot::end);
      }
      return last_;
    }

   private:
    const std::span<const GpuSpot> spots_;
    GpuSpot last_;
  };

  Side a_;
  Side b_;
  const bool is_write_;
};

}  // namespace zerohop::engine
