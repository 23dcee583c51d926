// A protection domain: queue pairs and memory regions work together only inside one.
#pragma once

#include <memory>

#include "rdma/device.hpp"

namespace zerohop::rdma {

class ProtectionDomain {
 public:
  static std::shared_ptr<ProtectionDomain> create(std::shared_ptr<Device> device);

  Device& device() const noexcept { return *device_; }
  const std::shared_ptr<Device>& device_ptr() const noexcept { return device_; }
  const driver::Verbs& verbs() const noexcept { return device_->verbs(); }
  ibv_pd* handle() const noexcept { return handle_.get(); }

 private:
  struct Dealloc : Maker {
    void operator()(ibv_pd* pd) const noexcept;
  };
  using Handle = std::unique_ptr<ibv_pd, Dealloc>;
  ProtectionDomain(std::shared_ptr<Device> device, Handle handle);

  std::shared_ptr<Device> device_;  // declared first: outlives the handle
  Handle handle_;
};

}  // namespace zerohop::rdma
