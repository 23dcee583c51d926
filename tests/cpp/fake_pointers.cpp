#include "fake_pointers.hpp"

#include <cstring>

namespace zerohop::testing {

using gpu::MemoryKind;

namespace {

template <typename T>
void put(void* value, T what) {
  std::memcpy(value, &what, sizeof what);
}

}  // namespace

void put_pointer_attribute(const FakeCuda::Memory& m, std::uint64_t address, int attribute,
                           void* value) {
  const bool on_host = m.kind == MemoryKind::pinned;
  switch (attribute) {
    case driver::kCudaMemoryType:
      return put(value, on_host ? driver::kCudaMemoryHost : driver::kCudaMemoryDevice);
    case driver::kCudaAddressOnGpu: return put(value, address + m.shift_on_gpu);
    case driver::kCudaIsManaged: return put(value, unsigned{m.kind == MemoryKind::managed});
    case driver::kCudaDeviceOrdinal: return put(value, m.ordinal);
    case driver::kCudaBufferId: return put(value, m.buffer_id);
    case driver::kCudaRangeBegin: return put(value, m.range.begin);
    case driver::kCudaRangeNbytes: return put(value, m.range.end - m.range.begin);
    case driver::kCudaMappingBegin: return put(value, m.mapping.begin);
    case driver::kCudaMappingNbytes: return put(value, m.mapping.end - m.mapping.begin);
    case driver::kCudaIsGpudirectCapable: return put(value, unsigned{m.gpudirect_capable});
    case driver::kCudaIsLegacyIpcCapable: return put(value, unsigned{m.kind == MemoryKind::plain});
    case driver::kCudaAllowedHandleTypes:
      return put(value, std::uint64_t{m.kind == MemoryKind::vmm});
    case driver::kCudaSyncMemops: return put(value, unsigned{0});
    case driver::kCudaPool: return put(value, std::uint64_t{m.kind == MemoryKind::pool});
    default: return;
  }
}

}  // namespace zerohop::testing
