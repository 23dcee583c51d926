#include "rdma/protection_domain.hpp"

#include "driver/verbs_call.hpp"

namespace zerohop::rdma {

std::shared_ptr<ProtectionDomain> ProtectionDomain::create(std::shared_ptr<Device> device) {
  const std::string what = "ibv_alloc_pd on " + device->name();
  Handle handle(driver::check_null(device->verbs().alloc_pd(device->context()), what),
                Dealloc{{&device->verbs()}});
  return std::shared_ptr<ProtectionDomain>(
      new ProtectionDomain(std::move(device), std::move(handle)));
}

ProtectionDomain::ProtectionDomain(std::shared_ptr<Device> device, Handle handle)
    : device_(std::move(device)), handle_(std::move(handle)) {}

void ProtectionDomain::Dealloc::operator()(ibv_pd* pd) const noexcept {
  if (is_this_process()) driver::report_errno(verbs->dealloc_pd(pd), "ibv_dealloc_pd");
}

}  // namespace zerohop::rdma
