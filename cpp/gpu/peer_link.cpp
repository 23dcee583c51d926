#include "gpu/peer_link.hpp"

#include <algorithm>

#include "driver/cuda_call.hpp"
#include "driver/cuda_constants.hpp"

namespace zerohop::gpu {

using driver::check_cuda;

PeerLink find_peer(const Device& device, const driver::CudaUuid& other) {
  const driver::Cuda& cuda = device.cuda();
  int count = 0;
  check_cuda(cuda, cuda.device_get_count(&count), "cuDeviceGetCount");
  for (int ordinal = 0; ordinal < count; ++ordinal) {
    driver::CudaDevice handle = 0;
    driver::CudaUuid found{};
    check_cuda(cuda, cuda.device_get(&handle, ordinal), "cuDeviceGet");
    check_cuda(cuda, cuda.device_get_uuid(&found, handle), "cuDeviceGetUuid");
    if (!std::ranges::equal(found.bytes, other.bytes)) continue;
    const bool same = ordinal == device.ordinal();
    return {.kind = same ? PeerLink::Kind::same : PeerLink::Kind::seen,
            .ordinal = ordinal,
            .pci = pci_address(cuda, handle)};
  }
  return {};
}

bool has_native_atomics(const Device& device, driver::CudaDevice owner) {
  const driver::Cuda& cuda = device.cuda();
  int has = 0;
  check_cuda(
      cuda,
      cuda.device_get_p2p_attribute(&has, driver::kCudaP2pNativeAtomics, device.handle(), owner),
      "cuDeviceGetP2PAttribute of " + device.facts().device_name());
  return has != 0;
}

bool has_native_atomics(const Device& device, const PeerLink& link) {
  if (link.kind != PeerLink::Kind::seen) return link.kind == PeerLink::Kind::same;
  driver::CudaDevice owner = 0;
  check_cuda(device.cuda(), device.cuda().device_get(&owner, link.ordinal), "cuDeviceGet");
  return has_native_atomics(device, owner);
}

std::string why_out_of_reach(const Device& device, const PeerLink& link) {
  const std::string name = device.facts().device_name();
  if (link.kind == PeerLink::Kind::same) return "";
  if (link.kind == PeerLink::Kind::unseen) {
    return "its GPU is not visible to this process: have CUDA_VISIBLE_DEVICES name it "
           "here, too";
  }
  const driver::Cuda& cuda = device.cuda();
  driver::CudaDevice other = 0;
  int can = 1;
  const bool known =
      cuda.device_get(&other, link.ordinal) == driver::kCudaSuccess &&
      cuda.device_can_access_peer(&can, device.handle(), other) == driver::kCudaSuccess;
  if (!known || can != 0) return "";
  return "the driver sees no peer access between " + name +
         " and cuda:" + std::to_string(link.ordinal);
}

}  // namespace zerohop::gpu
