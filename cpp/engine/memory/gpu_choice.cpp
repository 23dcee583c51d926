#include "engine/memory/gpu_choice.hpp"

#include <algorithm>
#include <numeric>
#include <utility>

#include "base/error.hpp"
#include "driver/cuda_call.hpp"
#include "engine/memory/cuda_table.hpp"

namespace zerohop::engine {

using driver::check_cuda;

namespace {

int count_gpus(const driver::Cuda& cuda) {
  int count = 0;
  check_cuda(cuda, cuda.init(0), "cuInit");
  check_cuda(cuda, cuda.device_get_count(&count), "cuDeviceGetCount");
  return count;
}

}  // namespace

GpuChoice::Table GpuChoice::table(const Table& given) {
  if (const std::string reason = none_.reason(); !reason.empty()) throw RouteUnavailable(reason);
  std::string why = "the driver finds none (CUDA_VISIBLE_DEVICES?)";
  try {
    Table cuda = cuda_or(given, "a GPU");
    if (count_gpus(*cuda) > 0) return cuda;
  } catch (const Error& error) {
    why = error.what();
  }
  none_.set("this process has no GPU that could copy: " + why);
  throw RouteUnavailable(none_.reason());
}

GpuChoice::DevicePtr GpuChoice::found(const std::string& remote) const {
  const std::lock_guard lock(mutex_);
  const auto known = found_.find(remote);
  return known == found_.end() ? nullptr : known->second;
}

void GpuChoice::remember(const std::string& remote, DevicePtr device) {
  const std::lock_guard lock(mutex_);
  found_[remote] = std::move(device);
}

std::vector<int> GpuChoice::candidates(const driver::Cuda& cuda, const driver::CudaUuid& gpu) {
  std::vector<int> all(static_cast<std::size_t>(count_gpus(cuda)));
  std::iota(all.begin(), all.end(), 0);
  for (const int ordinal : all) {
    driver::CudaDevice handle = 0;
    driver::CudaUuid uuid{};
    check_cuda(cuda, cuda.device_get(&handle, ordinal), "cuDeviceGet");
    check_cuda(cuda, cuda.device_get_uuid(&uuid, handle), "cuDeviceGetUuid");
    if (std::ranges::equal(uuid.bytes, gpu.bytes)) return {ordinal};
  }
  return all;
}

GpuChoice::DevicePtr GpuChoice::open(const Table& cuda, int ordinal) {
  {
    const std::lock_guard lock(mutex_);
    const auto known = opened_.find(ordinal);
    if (known != opened_.end()) return known->second;
  }
  DevicePtr fresh = gpu::Device::open(cuda, ordinal);
  const std::lock_guard lock(mutex_);
  return opened_.try_emplace(ordinal, std::move(fresh)).first->second;
}

}  // namespace zerohop::engine
