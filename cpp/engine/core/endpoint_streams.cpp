// Waits of the program's streams and kernels.
#include "base/error.hpp"
#include "engine/core/endpoint.hpp"
#include "engine/memory/cuda_table.hpp"
#include "engine/notify/slots.hpp"
#include "gpu/device_guard.hpp"
#include "gpu/user_stream.hpp"

namespace zerohop::engine {
namespace {

bool is_captured(const StreamWaits::Stream& stream) {
  const gpu::DeviceGuard guard(*stream.device);
  return gpu::check_capturable(*stream.device, stream.handle);
}

}  // namespace

Endpoint::Polling Endpoint::polling() const {
  const std::weak_ptr<Control> control = control_;
  return {services_.poller, [control] {
            if (const auto alive = control.lock()) alive->look();
          }};
}

StreamWaits::Host Endpoint::stream_host() const {
  const std::weak_ptr<Control> control = control_;
  auto [poller, look] = polling();
  return {.poller = std::move(poller),
          .board = gpu_board_,
          .drivers = drivers_,
          .look = std::move(look),
          .alone = [control]() -> std::optional<std::string> {
            const auto alive = control.lock();
            return alive ? alive->lonely() : std::nullopt;
          }};
}

std::shared_ptr<Transfer> Endpoint::wait_notify_on(driver::CudaStream stream, std::uint32_t slot,
                                                   bool reset, std::optional<double> timeout) {
  const Entered entered = enter();
  check_slots(slot, 1);
  (void)deadline(timeout);  // throws unless it is a number of seconds
  const StreamWaits::Stream found = streams_->find(stream, timeout);
  const auto captured_waits = streams_->captured_waits();
  if (!is_captured(found)) {
    captured_waits->check_free(slot);
    return streams_->waits()->notification(found, slot, reset);
  }
  if (reset) {
    streams_->waits()->check_free(slot, 1);
    return captured_waits->notification(found, slot, deadline({}));
  }
  throw RouteUnavailable(
      "wait_notify(reset=False) cannot become part of a CUDA graph, where each replay takes the "
      "next notification: leave reset out, or make the call outside the capture");
}

std::unique_ptr<SlotClaim> Endpoint::claim_slots(const std::string& device, std::uint32_t first,
                                                 std::uint32_t count, const Deadline& deadline) {
  const Entered entered = enter();
  check_slots(first, count);
  (void)cuda_for_call(options_.cuda, "kernels of " + device, "wait on the CPU, by wait_notify()");
  streams_->waits()->check_free(first, count);
  return std::make_unique<SlotClaim>(gpu_board_, gpu_device(device), first, count, deadline);
}

std::shared_ptr<Transfer> Endpoint::wait_transfer_on(driver::CudaStream stream,
                                                     const std::shared_ptr<Transfer>& transfer,
                                                     std::optional<double> timeout) {
  const Entered entered = enter();
  (void)deadline(timeout);  // throws unless it is a number of seconds
  if (const auto& point = transfer->captured()) {
    point->precede(stream);
    return transfer;
  }
  const StreamWaits::Stream found = streams_->find(stream, timeout);
  if (!is_captured(found)) return streams_->waits()->transfer(found, transfer);
  return streams_->captured_waits()->transfer(found, transfer, deadline({}));
}

}  // namespace zerohop::engine
