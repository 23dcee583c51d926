// Who reduces the blocks of a collective, and in which memory: CPUs in the host's, kernels in a
// GPU's. The results are the same, bit for bit.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <utility>

#include "base/deadline.hpp"
#include "engine/collective/reduction.hpp"
#include "gpu/reducer.hpp"

namespace zerohop::engine::collective {

class Combiner {
 public:
  Combiner() = default;
  virtual ~Combiner() = default;
  Combiner(const Combiner&) = delete;
  Combiner& operator=(const Combiner&) = delete;

  // Whether a CPU reaches the blocks.
  virtual bool on_host() const noexcept = 0;
  // As collective::reduce(). It may be done only after finish(); what is begun later follows it.
  virtual void begin(const Reduction& reduction, std::byte* out,
                     std::span<const std::byte* const> in, std::uint64_t count) = 0;
  virtual void finish() = 0;
};

class HostCombiner : public Combiner {
 public:
  bool on_host() const noexcept override { return true; }
  void begin(const Reduction& reduction, std::byte* out, std::span<const std::byte* const> in,
             std::uint64_t count) override {
    reduce(reduction, out, in, count);
  }
  void finish() override {}
};
std::shared_ptr<Combiner> host_combiner();  // always the same

// Of one call. Up to gpu::kReduceInputs blocks. Throws CudaError, TransferTimeout.
class GpuCombiner : public Combiner {
 public:
  GpuCombiner(std::shared_ptr<gpu::Reducer> reducer, const Deadline& deadline)
      : reducer_(std::move(reducer)), deadline_(deadline) {}
  bool on_host() const noexcept override { return false; }
  void begin(const Reduction& reduction, std::byte* out, std::span<const std::byte* const> in,
             std::uint64_t count) override;
  void finish() override { reducer_->wait(deadline_); }

 private:
  const std::shared_ptr<gpu::Reducer> reducer_;
  const Deadline deadline_;
};

}  // namespace zerohop::engine::collective
