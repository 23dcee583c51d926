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

std::shared_ptr<ProtectionDomain> ProtectionDomain::with_own_register(
    const std::shared_ptr<ProtectionDomain>& domain) {
  const driver::Verbs* const verbs = &domain->verbs();
  ibv_context* const context = domain->device().context();
  ibv_td_init_attr wanted{};
  Thread thread(::ibv_alloc_td(context, &wanted), DeallocThread{{verbs}});
  if (!thread) return domain;
  ibv_parent_domain_init_attr parts{};
  parts.pd = domain->handle();
  parts.td = thread.get();
  Handle handle(::ibv_alloc_parent_domain(context, &parts), Dealloc{{verbs}});
  if (!handle) return domain;
  auto part = std::shared_ptr<ProtectionDomain>(
      new ProtectionDomain(domain->device_ptr(), std::move(handle)));
  part->whole_ = domain;
  part->thread_ = std::move(thread);
  return part;
}

ProtectionDomain::ProtectionDomain(std::shared_ptr<Device> device, Handle handle)
    : device_(std::move(device)), handle_(std::move(handle)) {}

void ProtectionDomain::Dealloc::operator()(ibv_pd* pd) const noexcept {
  if (is_this_process()) driver::report_errno(verbs->dealloc_pd(pd), "ibv_dealloc_pd");
}

void ProtectionDomain::DeallocThread::operator()(ibv_td* thread) const noexcept {
  if (is_this_process()) driver::report_errno(::ibv_dealloc_td(thread), "ibv_dealloc_td");
}

}  // namespace zerohop::rdma
