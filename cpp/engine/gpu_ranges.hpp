// Where ranges of another process's GPU memory lie in the chunks that are mapped of it.
#pragma once

#include <algorithm>
#include <cstdint>
#include <span>
#include <vector>

#include "base/runs.hpp"
#include "engine/gpu_windows.hpp"
#include "gpu/copy_piece.hpp"

namespace zerohop::engine {

class GpuRanges {
 public:
  // places: not empty, in order and without gaps. What is added goes behind `ranges`.
  GpuRanges(std::span<const GpuWindows::Place> places, bool is_write,
            std::vector<gpu::CopyPiece>& ranges)
      : places_(places), is_write_(is_write), ranges_(ranges) {}

  // `b` of the run lies in the places; it is split where they end.
  void add(Run run) {
    while (run.nbytes > 0) {
      if (run.b_address < begin_ || run.b_address >= end_) find(run.b_address);
      const std::uint64_t nbytes = std::min(run.nbytes, end_ - run.b_address);
      const std::uint64_t there = run.b_address + shift_;
      ranges_.push_back({.from = is_write_ ? run.a_address : there,
                         .to = is_write_ ? there : run.a_address,
                         .nbytes = nbytes});
      run = {run.a_address + nbytes, run.b_address + nbytes, run.nbytes - nbytes};
    }
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
  std::vector<gpu::CopyPiece>& ranges_;
  // Of the place that was found last; none.
  std::uint64_t begin_ = 0;
  std::uint64_t end_ = 0;
  std::uint64_t shift_ = 0;  // wraps
};

}  // namespace zerohop::engine
