// A shared receive queue (SRQ): all queue pairs made with it take receives from it.
#pragma once

#include <cstdint>
#include <memory>

#include "rdma/maker.hpp"
#include "rdma/protection_domain.hpp"

namespace zerohop::rdma {

class SharedReceiveQueue {
 public:
  // depth: work requests, at most what the device allows. Throws VerbsError.
  static std::shared_ptr<SharedReceiveQueue> create(std::shared_ptr<ProtectionDomain> domain,
                                                    std::uint32_t depth);

  ibv_srq* handle() const noexcept { return handle_.get(); }

  // Returns 0 or errno (ENOMEM: queue full); *bad is the first request not posted. Any thread.
  [[nodiscard]] int post(ibv_recv_wr& chain, ibv_recv_wr** bad) noexcept {
    return ibv_post_srq_recv(handle_.get(), &chain, bad);
  }

 private:
  struct Destroy : Maker {
    void operator()(ibv_srq* srq) const noexcept;
  };
  using Handle = std::unique_ptr<ibv_srq, Destroy>;
  SharedReceiveQueue(std::shared_ptr<ProtectionDomain> domain, Handle handle)
      : domain_(std::move(domain)), handle_(std::move(handle)) {}

  std::shared_ptr<ProtectionDomain> domain_;
  Handle handle_;
};

}  // namespace zerohop::rdma
