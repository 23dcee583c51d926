#include "gpu/device_facts.hpp"

#include <algorithm>
#include <array>
#include <cctype>
#include <cstdio>
#include <cstdlib>

#include "base/text_file.hpp"
#include "driver/cuda_call.hpp"

namespace zerohop::gpu {
namespace {

int attribute(const driver::Cuda& cuda, driver::CudaDevice device, int which) {
  int value = 0;
  driver::check_cuda(cuda, cuda.device_get_attribute(&value, which, device),
                     "cuDeviceGetAttribute " + std::to_string(which));
  return value;
}

template <typename Get>
std::string text(const driver::Cuda& cuda, const char* what, Get get) {
  std::array<char, 256> buffer{};
  driver::check_cuda(cuda, get(buffer.data(), static_cast<int>(buffer.size() - 1)), what);
  return buffer.data();
}

std::optional<std::uint64_t> bar1_of(const std::string& pci) {
  const std::string path = "/sys/bus/pci/devices/" + pci + "/resource";
  const TextFile file = open_text(path);
  std::array<char, 4096> content{};
  if (file == nullptr) return std::nullopt;
  const std::size_t nbytes = std::fread(content.data(), 1, content.size() - 1, file.get());
  return largest_window(std::string(content.data(), nbytes));
}

}  // namespace

std::string pci_address(const driver::Cuda& cuda, driver::CudaDevice device) {
  std::string pci = text(cuda, "cuDeviceGetPCIBusId", [&](char* to, int nbytes) {
    return cuda.device_get_pci_bus_id(to, nbytes, device);
  });
  std::ranges::transform(pci, pci.begin(),
                         [](unsigned char c) { return static_cast<char>(std::tolower(c)); });
  return pci;
}

std::optional<std::uint64_t> largest_window(const std::string& resource) {
  std::uint64_t largest = 0;
  const char* at = resource.c_str();
  for (;;) {  // each line: first address, last address, flags
    std::array<std::uint64_t, 3> numbers{};
    for (std::uint64_t& number : numbers) {
      char* end = nullptr;
      number = std::strtoull(at, &end, 16);
      if (end == at) return largest > 0 ? std::optional(largest) : std::nullopt;
      at = end;
    }
    const auto [first, last, flags] = numbers;
    if (last > first) largest = std::max(largest, last - first + 1);
  }
}

DeviceFacts ask_device(const driver::Cuda& cuda, driver::CudaDevice device, int ordinal) {
  const auto ask = [&](int which) { return attribute(cuda, device, which); };
  DeviceFacts facts;
  facts.ordinal = ordinal;
  facts.name = text(cuda, "cuDeviceGetName",
                    [&](char* to, int nbytes) { return cuda.device_get_name(to, nbytes, device); });
  facts.pci = pci_address(cuda, device);
  driver::check_cuda(cuda, cuda.driver_get_version(&facts.driver), "cuDriverGetVersion");
  facts.compute = 10 * ask(driver::kCudaComputeMajor) + ask(driver::kCudaComputeMinor);
  facts.gpudirect = ask(driver::kCudaGpudirectSupported) != 0;
  facts.gpudirect_vmm = ask(driver::kCudaGpudirectWithVmm) != 0;
  facts.vmm = ask(driver::kCudaVmmSupported) != 0;
  facts.fd_export = ask(driver::kCudaFdExportSupported) != 0;
  facts.dmabuf = ask(driver::kCudaDmabufSupported) != 0;
  facts.flush_by_host = (ask(driver::kCudaFlushOptions) & driver::kCudaFlushByHost) != 0;
  facts.flush_by_stream = (ask(driver::kCudaFlushOptions) & driver::kCudaFlushByStream) != 0;
  facts.reaches_registered = ask(driver::kCudaSameRegisteredAddress) != 0;
  facts.writes_ordering = ask(driver::kCudaWritesOrdering);
  facts.bar1_nbytes = bar1_of(facts.pci);
  return facts;
}

}  // namespace zerohop::gpu
