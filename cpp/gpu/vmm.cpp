#include "gpu/vmm.hpp"

#include "driver/cuda_call.hpp"

namespace zerohop::gpu {

AddressRange::AddressRange(const driver::Cuda& cuda, std::uint64_t nbytes, const std::string& what)
    : cuda_(cuda), nbytes_(nbytes) {
  driver::check_cuda(cuda, cuda.memory_reserve(&begin_, nbytes, /*alignment=*/0, /*wish=*/0, 0),
                     "cuMemAddressReserve for " + what);
}

MappedMemory::MappedMemory(const driver::Cuda& cuda, driver::CudaAddress begin,
                           std::uint64_t nbytes, const PhysicalMemory& physical,
                           const std::string& what)
    : cuda_(&cuda), begin_(begin), nbytes_(nbytes) {
  driver::check_cuda(cuda, cuda.memory_map(begin, nbytes, /*offset=*/0, physical.handle(), 0),
                     "cuMemMap of " + what);
}

}  // namespace zerohop::gpu
