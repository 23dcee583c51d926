// A local array, one of a Peer and the way between them, for kernels of the program.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>

#include "gda/opened_way.hpp"

namespace zerohop::gda {

class DeviceQueue {
 public:
  struct Options {
    engine::Hearers hearers = engine::Hearers::both;  // by the way of mapped memory
    WantedWay way = WantedWay::automatic;
    std::optional<double> timeout{};  // seconds; none: the Endpoint's
  };
  // Throws RouteUnavailable (no way, or not that way), std::invalid_argument (arrays that it does
  // not take), PeerLost, CudaError, RegistrationError, TransferTimeout.
  DeviceQueue(const QueueArrays& arrays, const Options& options, const Deadline& deadline);

  const device::Queue& value() const noexcept { return way_.queue; }
  std::uint64_t address() const noexcept;  // of the same in the GPU's memory
  const engine::Route& route() const noexcept { return *way_.route; }
  const std::string& device() const noexcept { return device_; }
  const char* way() const noexcept;  // "mapped", "direct" or "proxy"
  // Why nothing is carried out any more; empty: it is.
  std::string error() const;

 private:
  OpenedWay way_;
  const std::string device_;
  std::unique_ptr<DeviceValue> memory_;
};

}  // namespace zerohop::gda
