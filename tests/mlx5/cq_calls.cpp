// Completion queues and shared receive queues.
#include <rdma/ib_user_ioctl_verbs.h>
#include <rdma/ib_user_verbs.h>
#include <rdma/mlx5-abi.h>

#include <bit>

#include "commands.hpp"
#include "files.hpp"
#include "softhca/shared_receive_queue.hpp"

namespace zerohop::mlx5sim {
namespace {

QueueMemory memory(std::uint64_t address) {
  if (address == 0) throw Refused{EFAULT};
  return QueueMemory(address);
}

CqRing ring_of(std::uint64_t address, std::uint32_t cqe, std::uint32_t entry_nbytes) {
  const CqRing ring{memory(address), cqe + 1, entry_nbytes};
  const bool known = entry_nbytes == 64 || entry_nbytes == 128;
  if (!known || ring.count > (1u << 22) || !std::has_single_bit(ring.count)) throw Refused{EINVAL};
  return ring;
}

}  // namespace

void cq_calls::create(Ucontext& context, Call& call) {
  const auto own = call.in<mlx5_ib_create_cq>(UVERBS_ATTR_UHW_IN);
  const auto cqe = call.in<std::uint32_t>(UVERBS_ATTR_CREATE_CQ_CQE);
  const auto vector = call.in<std::uint32_t>(UVERBS_ATTR_CREATE_CQ_COMP_VECTOR);
  const auto flags = call.in<std::uint32_t>(UVERBS_ATTR_CREATE_CQ_FLAGS, 0u);
  if (vector != 0 || flags != 0 || own.cqe_comp_en != 0) throw Refused{EOPNOTSUPP};
  std::shared_ptr<EventFile> channel;
  if (call.has(UVERBS_ATTR_CREATE_CQ_COMP_CHANNEL)) {
    channel = files::events(static_cast<int>(call.handle(UVERBS_ATTR_CREATE_CQ_COMP_CHANNEL)));
    if (!channel) throw Refused{EBADF};
  }
  const std::uint32_t handle = context.cqs.add(
      std::make_unique<Cq>(ring_of(own.buf_addr, cqe, own.cqe_size), memory(own.db_addr),
                           call.in<std::uint64_t>(UVERBS_ATTR_CREATE_CQ_USER_HANDLE), channel));
  call.out(UVERBS_ATTR_CREATE_CQ_RESP_CQE, cqe);
  call.out(UVERBS_ATTR_UHW_OUT, mlx5_ib_create_cq_resp{.cqn = handle, .reserved = 0});
  call.made(UVERBS_ATTR_CREATE_CQ_HANDLE, handle);
}

void cq_calls::resize(Ucontext& context, Write& write) {
  const auto asked = write.request<ib_uverbs_resize_cq>();
  const auto own = write.call.in<mlx5_ib_resize_cq>(UVERBS_ATTR_UHW_IN);
  if (!context.cqs.at(asked.cq_handle).resize(ring_of(own.buf_addr, asked.cqe, own.cqe_size))) {
    throw Refused{EINVAL};
  }
  write.respond(ib_uverbs_resize_cq_resp{.cqe = asked.cqe, .reserved = 0});
}

void cq_calls::destroy(Ucontext& context, Call& call) {
  const std::uint32_t handle = call.handle(UVERBS_ATTR_DESTROY_CQ_HANDLE);
  Cq& cq = context.cqs.at(handle);
  if (cq.users > 0) throw Refused{EBUSY};
  call.out(UVERBS_ATTR_DESTROY_CQ_RESP,
           ib_uverbs_destroy_cq_resp{.comp_events_reported = cq.retire(),
                                     .async_events_reported = context.forget(cq.async)});
  context.cqs.remove(handle);
}

void srq_calls::create(Ucontext& context, Call& call) {
  const auto own = call.in<mlx5_ib_create_srq>(UVERBS_ATTR_UHW_IN);
  const auto most = call.in<std::uint32_t>(UVERBS_ATTR_CREATE_SRQ_MAX_WR);
  const auto most_sge = call.in<std::uint32_t>(UVERBS_ATTR_CREATE_SRQ_MAX_SGE);
  if (call.in<std::uint32_t>(UVERBS_ATTR_CREATE_SRQ_TYPE) != IB_UVERBS_SRQT_BASIC || own.flags != 0)
    throw Refused{EOPNOTSUPP};
  // As libmlx5 lays them out: a link, the elements, and up to the next power of two.
  const std::uint32_t entry = std::bit_ceil(std::max(16 + 16 * most_sge, 32u));
  const QueueMemory entries = memory(own.buf_addr);
  const QueueMemory record = memory(own.db_addr);
  ibv_srq_init_attr init{};
  init.attr = {most + 1, most_sge, 0};
  ibv_pd* pd = context.pds.at(call.handle(UVERBS_ATTR_CREATE_SRQ_PD_HANDLE)).soft;
  ibv_srq* soft = softhca::create_srq(pd, &init);
  if (soft == nullptr) throw Refused{errno};
  const std::uint32_t handle = context.srqs.add(
      std::make_unique<Srq>(entries, entry, record, soft, most,
                            call.in<std::uint64_t>(UVERBS_ATTR_CREATE_SRQ_USER_HANDLE)));
  call.out(UVERBS_ATTR_CREATE_SRQ_RESP_MAX_WR, most);
  call.out(UVERBS_ATTR_CREATE_SRQ_RESP_MAX_SGE, most_sge);
  call.out(UVERBS_ATTR_UHW_OUT, mlx5_ib_create_srq_resp{.srqn = handle, .reserved = 0});
  call.made(UVERBS_ATTR_CREATE_SRQ_HANDLE, handle);
}

void srq_calls::modify(Ucontext& context, Write& write) {
  const auto asked = write.request<ib_uverbs_modify_srq>();
  if ((asked.attr_mask & ~std::uint32_t{IBV_SRQ_LIMIT}) != 0) throw Refused{EINVAL};
  if ((asked.attr_mask & IBV_SRQ_LIMIT) != 0) {
    context.srqs.at(asked.srq_handle).limit = asked.srq_limit;
  }
}

void srq_calls::query(Ucontext& context, Write& write) {
  const auto asked = write.request<ib_uverbs_query_srq>();
  const Srq& srq = context.srqs.at(asked.srq_handle);
  const softhca::SharedReceiveQueue& below = softhca::SharedReceiveQueue::of(srq.soft);
  write.respond(ib_uverbs_query_srq_resp{
      .max_wr = srq.most, .max_sge = below.most_sge(), .srq_limit = srq.limit, .reserved = 0});
}

void srq_calls::destroy(Ucontext& context, Call& call) {
  const std::uint32_t handle = call.handle(UVERBS_ATTR_DESTROY_SRQ_HANDLE);
  Srq& srq = context.srqs.at(handle);
  if (srq.users > 0) throw Refused{EBUSY};
  if (const int error = softhca::destroy_srq(srq.soft); error != 0) throw Refused{error};
  call.out(UVERBS_ATTR_DESTROY_SRQ_RESP,
           ib_uverbs_destroy_srq_resp{.events_reported = context.forget(srq.async)});
  context.srqs.remove(handle);
}

}  // namespace zerohop::mlx5sim
