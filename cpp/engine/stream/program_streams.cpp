#include "engine/stream/program_streams.hpp"

#include <mutex>
#include <utility>

#include "base/error.hpp"
#include "engine/memory/cuda_table.hpp"
#include "gpu/kernel_image.hpp"
#include "gpu/user_stream.hpp"

namespace zerohop::engine {

StreamWaits::Stream ProgramStreams::find(driver::CudaStream handle, std::optional<double> timeout) {
  StreamWaits::Stream stream{.handle = handle, .seconds = timeout.value_or(seconds_)};
  const std::lock_guard lock(mutex_);
  for (const auto& [ordinal, known] : devices_) {
    if (gpu::is_of(*known, handle)) stream.device = known;
  }
  if (stream.device) return stream;
  const auto table = cuda_for_stream(cuda_);
  const int ordinal = gpu::ordinal_of(*table, handle);
  const auto known = devices_.find(ordinal);
  stream.device = known != devices_.end()
                      ? known->second
                      : devices_.emplace(ordinal, gpu::Device::open(table, ordinal)).first->second;
  return stream;
}

std::shared_ptr<StreamWaits> ProgramStreams::waits() {
  const std::lock_guard lock(mutex_);
  if (closed_) throw Error("this Endpoint is closed: make a new one");
  if (!waits_) waits_ = std::make_shared<StreamWaits>(*host_);
  return waits_;
}

std::shared_ptr<CapturedWaits> ProgramStreams::captured_waits() {
  const std::lock_guard lock(mutex_);
  if (closed_) throw Error("this Endpoint is closed: make a new one");
  if (!captured_waits_) captured_waits_ = std::make_shared<CapturedWaits>(*host_);
  return captured_waits_;
}

std::unique_ptr<StreamHold> ProgramStreams::hold(driver::CudaStream handle) {
  if (gpu::kernel_image().empty()) return nullptr;
  return std::make_unique<StreamHold>(waits(), find(handle, {}));
}

std::optional<std::uint32_t> ProgramStreams::awaited(driver::CudaStream handle) {
  std::shared_ptr<StreamWaits> waits;
  {
    const std::lock_guard lock(mutex_);
    waits = waits_;
  }
  return waits ? waits->awaited(handle) : std::nullopt;
}

void ProgramStreams::end_waits() {
  const std::lock_guard lock(mutex_);
  closed_ = true;
  if (waits_) waits_->end_all();
  if (captured_waits_) captured_waits_->close();  // the board's own word ends them
}

void ProgramStreams::release() noexcept {
  const std::lock_guard lock(mutex_);
  waits_.reset();
  captured_waits_.reset();
  devices_.clear();
  host_.reset();
}

}  // namespace zerohop::engine
