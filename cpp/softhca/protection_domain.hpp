// A protection domain, which queue pairs and memory regions must share.
#pragma once

#include <infiniband/verbs.h>

#include <atomic>

namespace zerohop::softhca {

struct ProtectionDomain : ibv_pd {
  std::atomic<int> users{0};  // memory regions and queue pairs in it

  static ProtectionDomain& of(ibv_pd* domain) noexcept {
    return *static_cast<ProtectionDomain*>(domain);
  }
};

// The members of driver::Verbs.
ibv_pd* alloc_pd(ibv_context* context);
int dealloc_pd(ibv_pd* domain);

}  // namespace zerohop::softhca
