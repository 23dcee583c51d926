// A protection domain: queue pairs and memory regions work together only inside one.
#pragma once

#include <memory>

#include "rdma/device.hpp"

namespace zerohop::rdma {

class ProtectionDomain {
 public:
  static std::shared_ptr<ProtectionDomain> create(std::shared_ptr<Device> device);
  // A part of `domain` whose queue pairs share no doorbell register with others; `domain` itself
  // where the device has no such thing. Source: man ibv_alloc_td, ibv_alloc_parent_domain.
  static std::shared_ptr<ProtectionDomain> with_own_register(
      const std::shared_ptr<ProtectionDomain>& domain);

  Device& device() const noexcept { return *device_; }
  const std::shared_ptr<Device>& device_ptr() const noexcept { return device_; }
  const driver::Verbs& verbs() const noexcept { return device_->verbs(); }
  ibv_pd* handle() const noexcept { return handle_.get(); }

 private:
  struct Dealloc : Maker {
    void operator()(ibv_pd* pd) const noexcept;
  };
  struct DeallocThread : Maker {
    void operator()(ibv_td* thread) const noexcept;
  };
  using Handle = std::unique_ptr<ibv_pd, Dealloc>;
  using Thread = std::unique_ptr<ibv_td, DeallocThread>;
  ProtectionDomain(std::shared_ptr<Device> device, Handle handle);

  std::shared_ptr<Device> device_;           // declared first: outlives the handle
  std::shared_ptr<ProtectionDomain> whole_;  // and of a part the whole and the thread domain
  Thread thread_;
  Handle handle_;
};

}  // namespace zerohop::rdma
