// What streams and kernels of the program wait for.
#include "base/error.hpp"
#include "engine/cuda_table.hpp"
#include "engine/endpoint.hpp"
#include "engine/slots.hpp"
#include "gpu/user_stream.hpp"

namespace zerohop::engine {

StreamWaits::Stream Endpoint::stream_of(driver::CudaStream handle, std::optional<double> timeout) {
  (void)deadline(timeout);  // refuses what is no number of seconds
  StreamWaits::Stream stream{.handle = handle, .seconds = timeout.value_or(options_.timeout)};
  const std::lock_guard lock(gpu_mutex_);
  for (const auto& [ordinal, known] : stream_devices_) {
    if (gpu::is_of(*known, handle)) stream.device = known;
  }
  if (stream.device) return stream;
  const auto table = cuda_for_stream(options_.cuda);
  const int ordinal = gpu::ordinal_of(*table, handle);
  auto& device = stream_devices_[ordinal];
  if (!device) device = gpu::Device::open(table, ordinal);
  stream.device = device;
  return stream;
}

std::shared_ptr<StreamWaits> Endpoint::stream_waits() {
  const std::lock_guard lock(gpu_mutex_);
  check_open();  // close() tells those that it finds to give up
  if (!stream_waits_) {
    const std::weak_ptr<Control> control = control_;
    stream_waits_ = std::make_shared<StreamWaits>(
        StreamWaits::Host{.poller = services_.poller,
                          .board = gpu_board_,
                          .look =
                              [control] {
                                if (const auto alive = control.lock()) alive->look();
                              },
                          .alone = [control]() -> std::optional<std::string> {
                            const auto alive = control.lock();
                            return alive ? alive->lonely() : std::nullopt;
                          }});
  }
  return stream_waits_;
}

std::shared_ptr<Transfer> Endpoint::wait_notify_on(driver::CudaStream stream, std::uint32_t slot,
                                                   bool reset, std::optional<double> timeout) {
  const Entered entered = enter();
  check_slots(slot, 1);
  return stream_waits()->notification(stream_of(stream, timeout), slot, reset);
}

std::unique_ptr<SlotClaim> Endpoint::claim_slots(const std::string& device, std::uint32_t first,
                                                 std::uint32_t count, const Deadline& deadline) {
  const Entered entered = enter();
  check_slots(first, count);
  (void)cuda_for_call(options_.cuda, "kernels of " + device, "wait on the CPU, by wait_notify()");
  return std::make_unique<SlotClaim>(gpu_board_, gpu_device(device), first, count, deadline);
}

std::shared_ptr<Transfer> Endpoint::wait_transfer_on(driver::CudaStream stream,
                                                     const std::shared_ptr<Transfer>& transfer,
                                                     std::optional<double> timeout) {
  const Entered entered = enter();
  return stream_waits()->transfer(stream_of(stream, timeout), transfer);
}

}  // namespace zerohop::engine
