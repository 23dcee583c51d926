// Where ranges of another process's GPU memory lie in the chunks that are mapped of it.
#pragma once

#include <algorithm>
#include <cstdint>
#include <span>

#include "base/runs.hpp"
#include "engine/gpu_windows.hpp"
#include "gpu/copy_piece.hpp"

namespace zerohop::engine {

class GpuRanges {
 public:
  // places: not empty, in order and without gaps; they stay as long as this does.
  GpuRanges(std::span<const GpuWindows::Place> places, bool is_write)
      : places_(places), is_write_(is_write) {}

  // Takes off the run, whose `b` lies in the places, what lies in one of them, `most` bytes at
  // most.
  gpu::CopyPiece cut(Run& run, std::uint64_t most) {
    if (run.b_address < begin_ || run.b_address >= end_) find(run.b_address);
    const std::uint64_t nbytes = std::min({run.nbytes, end_ - run.b_address, most});
    const std::uint64_t there = run.b_address + shift_;
    const gpu::CopyPiece piece{.from = is_write_ ? run.a_address : there,
                               .to = is_write_ ? there : run.a_address,
                               .nbytes = nbytes};
    run = {run.a_address + nbytes, run.b_address + nbytes, run.nbytes - nbytes};
    return piece;
  }

 private:
  void find(std::uint64_t address) {
    const auto place = std::ranges::upper_bound(
        places_, address, {}, [](const GpuWindows::Place& one) { return one.window->end; });
    begin_ = place->window->begin;
    end_ = place->window->end;
    shift_ = place->memory->at(begin_) - begin_;
  }

  const std::span<const GpuWindows::Place> places_;
  const bool is_write_;
  // Of the place that was found last; none.
  std::uint64_t begin_ = 0;
  std::uint64_t end_ = 0;
  std::uint64_t shift_ = 0;  // wraps
};

}  // namespace zerohop::engine
