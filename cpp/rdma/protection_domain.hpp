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
  struct Dealloc {
    const driver::Verbs* verbs;
    void operator()(ibv_pd* pd) const noexcept;
  };
  ProtectionDomain(std::shared_ptr<Device> device, ibv_pd* pd);

  std::shared_ptr<Device> device_;  // declared first: outlives the handle
  std::unique_ptr<ibv_pd, Dealloc> handle_;
};

}  // namespace zerohop::rdma
