// A reduction of arrays in this GPU's memory.
#include "gpu/kernels/elements.cuh"
#include "gpu/reduce_call.hpp"

namespace zerohop::gpu {

class InputsReduction {
 public:
  __device__ explicit InputsReduction(const ReduceCall& call) : call_(call) {}

  template <typename Element>
  __device__ __noinline__ void of() {
    using One = Bytes<sizeof(typename Element::Stored)>;
    using Many = ManyBytes<sizeof(One)>;
    const u64 most = call_.by_vectors != 0 ? call_.nbytes / sizeof(Many) * sizeof(Many) : 0;
    by<Element, Many>(0, most);
    by<Element, One>(most, call_.nbytes);
  }

 private:
  // The bytes from `begin` to `end`.
  template <typename Element, typename Unit>
  __device__ void by(u64 begin, u64 end) const {
    const Reducing<SourceInputs> reducing{
        static_cast<ReduceOp>(call_.op), {0, call_.count, call_.ranks}, call_.factor};
    const u64 step = u64{gridDim.x} * blockDim.x * sizeof(Unit);
    const u64 thread = u64{blockIdx.x} * blockDim.x + threadIdx.x;
    reduce_units<Element, Unit>(
        reducing, begin + thread * sizeof(Unit), end, step,
        [&](u32 input) { return call_.in[input]; },
        [&](u64 at, const Unit& unit) { store_unit(call_.out + at, unit); });
  }

  const ReduceCall& call_;
};

}  // namespace zerohop::gpu

extern "C" __global__ void __launch_bounds__(zerohop::gpu::kReduceThreads)
    zerohop_reduce(const __grid_constant__ zerohop::gpu::ReduceCall call) {
  zerohop::gpu::InputsReduction mine(call);
  zerohop::gpu::for_type(call.type, mine);
}
