#include "engine/collective/combiner.hpp"

#include <algorithm>
#include <stdexcept>

#include "engine/collective/group_plan.hpp"

namespace zerohop::engine::collective {

std::shared_ptr<Combiner> host_combiner() {
  static const auto only = std::make_shared<HostCombiner>();
  return only;
}

void GpuCombiner::begin(const Reduction& reduction, std::byte* out,
                        std::span<const std::byte* const> in, std::uint64_t count) {
  const auto type = type_of(reduction.dtype);
  if (!type || in.empty() || in.size() > gpu::kReduceInputs) {
    throw std::invalid_argument("a GPU reduces from 1 to " + std::to_string(gpu::kReduceInputs) +
                                " arrays of numbers");
  }
  const auto address = [](const std::byte* at) { return reinterpret_cast<std::uint64_t>(at); };
  const auto inputs = static_cast<std::uint32_t>(in.size());
  gpu::ReduceCall call{.out = address(out),
                       .nbytes = count * reduction.dtype.itemsize(),
                       .factor = reduction.factor,
                       .op = static_cast<std::uint32_t>(reduction.op),
                       .type = *type,
                       .count = inputs,
                       .ranks = reduction.ranks > 0 ? reduction.ranks : inputs};
  std::ranges::transform(in, call.in, address);
  reducer_->enqueue(call);
}

}  // namespace zerohop::engine::collective
