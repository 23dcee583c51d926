#include "rdma/shared_receive_queue.hpp"

#include <cerrno>
#include <string>
#include <utility>

#include "driver/verbs_call.hpp"
#include "rdma/device.hpp"

namespace zerohop::rdma {

std::shared_ptr<SharedReceiveQueue> SharedReceiveQueue::create(
    std::shared_ptr<ProtectionDomain> domain, std::uint32_t depth) {
  const Device& device = domain->device();
  ibv_srq_init_attr wanted{};
  wanted.attr.max_wr = depth;
  wanted.attr.max_sge = 1;
  Handle handle(device.verbs().create_srq(domain->handle(), &wanted), Destroy{{&device.verbs()}});
  if (handle == nullptr) {
    const int error_number = errno;
    driver::throw_verbs_error("ibv_create_srq on " +
                                  device.name_with("max_srq", &ibv_device_attr::max_srq) +
                                  " with " + std::to_string(depth) + " receives (at most " +
                                  std::to_string(device.attributes().max_srq_wr) + ")",
                              error_number);
  }
  return std::shared_ptr<SharedReceiveQueue>(
      new SharedReceiveQueue(std::move(domain), std::move(handle)));
}

void SharedReceiveQueue::Destroy::operator()(ibv_srq* srq) const noexcept {
  if (is_this_process()) driver::report_errno(verbs->destroy_srq(srq), "ibv_destroy_srq");
}

}  // namespace zerohop::rdma
