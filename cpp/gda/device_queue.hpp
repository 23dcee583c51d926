// A local array, a Peer's array and the way between them, for the program's kernels.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>

#include "gda/opened_way.hpp"

namespace zerohop::gda {

class DeviceQueue {
 public:
  using Options = QueueOptions;
  // Throws RouteUnavailable (no way, or not the wanted one), std::invalid_argument (unsuitable
  // arrays), PeerLost, CudaError, RegistrationError, TransferTimeout.
  DeviceQueue(const QueueArrays& arrays, const Options& options, const Deadline& deadline);

  const device::Queue& value() const noexcept { return way_.queue; }
  std::uint64_t address() const noexcept;  // of the device::Queue in GPU memory
  const engine::Route& route() const noexcept { return *way_.route; }
  const std::string& device() const noexcept { return device_; }
  const char* way() const noexcept;  // "mapped", "direct" or "proxy"
  // Why the queue has stopped; empty: it works.
  std::string error() const;

 private:
  OpenedWay way_;
  const std::string device_;
  std::unique_ptr<DeviceValue> memory_;
};

}  // namespace zerohop::gda
