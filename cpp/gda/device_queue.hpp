// A local array, one of a Peer and the way between them, for kernels of the program.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>

#include "engine/peer.hpp"
#include "gda/device_value.hpp"
#include "zerohop/types.h"

namespace zerohop::gda {

class DeviceQueue {
 public:
  // Throws what Peer::reach_for_kernels() throws, TransferTimeout.
  DeviceQueue(const engine::Peer& peer, const engine::Memory& local,
              const engine::RemoteMemory& remote, engine::Hearers hearers,
              const std::optional<double>& timeout, const Deadline& deadline);

  const device::Queue& value() const noexcept { return queue_; }
  std::uint64_t address() const noexcept;  // of the same in the GPU's memory
  const engine::Route& route() const noexcept { return *route_; }
  const std::string& device() const noexcept { return device_; }

 private:
  DeviceQueue(engine::KernelReach&& reach, const engine::Memory& local,
              const engine::RemoteMemory& remote, const Deadline& deadline);

  const std::shared_ptr<const engine::Route> route_;
  const std::string device_;
  device::Queue queue_;
  std::unique_ptr<DeviceValue> memory_;
};

}  // namespace zerohop::gda
