#include "gpu/replay_words.hpp"

#include "base/error.hpp"
#include "driver/cuda_call.hpp"
#include "gpu/device_guard.hpp"
#include "gpu/handles.hpp"
#include "gpu/stream_wait.hpp"

namespace zerohop::gpu {
namespace {

constexpr std::uint64_t kWordNbytes = sizeof(std::uint32_t);

}  // namespace

ReplayWords::ReplayWords(const std::shared_ptr<const Device>& device, const Deadline& deadline)
    : words_(GpuWords::create(device, (2 * kCounts + kGates) * kWordNbytes, deadline)) {}

bool ReplayWords::set(const std::vector<driver::CudaAddress>& words, unsigned char byte,
                      const std::string& what, const Deadline& deadline) const {
  const driver::Cuda& cuda = device()->cuda();
  const DeviceGuard guard(*device());
  const Stream stream = make_stream(cuda);
  for (const driver::CudaAddress word : words) {
    driver::check_cuda(cuda, cuda.memory_set(word, byte, kWordNbytes, stream.get()),
                       "cuMemsetD8Async of " + what);
  }
  return wait_stream(*device(), stream.get(), what, deadline);
}

void ReplayWords::set_count(std::uint32_t slot, unsigned char byte,
                            const Deadline& deadline) const {
  const std::string what = "the count of a notification slot";
  if (set({count(slot)}, byte, what, deadline)) return;
  throw TransferTimeout(what +
                        " was not set in time: a kernel keeps the GPU busy; give the "
                        "Endpoint a longer timeout");
}

std::uint32_t ReplayWords::take_gate() {
  if (const auto gate = gates_.take()) return *gate;
  throw Error("too many captured calls with one peer exist on " + device()->facts().device_name() +
              ": drop CUDA graphs that are no longer used");
}

bool ReplayWords::close_gates(const std::vector<std::uint32_t>& gates,
                              const Deadline& deadline) const {
  std::vector<driver::CudaAddress> words;
  for (const std::uint32_t each : gates) words.push_back(gate(each));
  return set(words, 1, "the gates of captured calls", deadline);
}

}  // namespace zerohop::gpu
