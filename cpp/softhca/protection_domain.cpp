#include "softhca/protection_domain.hpp"

#include <cerrno>
#include <new>

#include "softhca/context.hpp"

namespace zerohop::softhca {

ibv_pd* alloc_pd(ibv_context* handle) {
  Context& context = Context::of(handle);
  const int obstacle = context.obstacle();
  auto* domain = obstacle != 0 ? nullptr : new (std::nothrow) ProtectionDomain;
  if (domain == nullptr) {
    errno = obstacle != 0 ? obstacle : ENOMEM;
    return nullptr;
  }
  domain->context = handle;
  domain->handle = 0;
  context.users.fetch_add(1, std::memory_order_relaxed);
  return domain;
}

int dealloc_pd(ibv_pd* handle) {
  Context& context = Context::of(handle->context);
  if (context.forked()) return 0;
  ProtectionDomain& domain = ProtectionDomain::of(handle);
  if (domain.users.load(std::memory_order_relaxed) != 0) return EBUSY;
  delete &domain;
  context.users.fetch_sub(1, std::memory_order_relaxed);
  return 0;
}

}  // namespace zerohop::softhca
