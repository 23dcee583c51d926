#include "commands.hpp"

#include <rdma/ib_user_ioctl_cmds.h>
#include <rdma/ib_user_verbs.h>
#include <rdma/mlx5_user_ioctl_cmds.h>

namespace zerohop::mlx5sim {
namespace {

void carry_out_write(Ucontext& context, Write write) {
  switch (write.command()) {
    case IB_USER_VERBS_CMD_QUERY_DEVICE:
    case IB_USER_VERBS_CMD_FLAG_EXTENDED | IB_USER_VERBS_EX_CMD_QUERY_DEVICE:
      return device_calls::query_device(context, write);
    case IB_USER_VERBS_CMD_CREATE_COMP_CHANNEL: return device_calls::create_comp_channel(write);
    case IB_USER_VERBS_CMD_CREATE_AH: return ah_calls::create(context, write);
    case IB_USER_VERBS_CMD_ALLOC_PD: return memory_calls::alloc_pd(context, write);
    case IB_USER_VERBS_CMD_REG_MR: return memory_calls::reg_mr(context, write);
    case IB_USER_VERBS_CMD_RESIZE_CQ: return cq_calls::resize(context, write);
    case IB_USER_VERBS_CMD_MODIFY_SRQ: return srq_calls::modify(context, write);
    case IB_USER_VERBS_CMD_QUERY_SRQ: return srq_calls::query(context, write);
    case IB_USER_VERBS_CMD_MODIFY_QP: return qp_calls::modify(context, write);
    case IB_USER_VERBS_CMD_QUERY_QP: return qp_calls::query(context, write);
    default: throw Refused{EOPNOTSUPP};
  }
}

constexpr std::uint32_t pair(unsigned object, unsigned method) { return object << 16 | method; }

}  // namespace

Write::Write(Call& from)
    : call(from),
      in_(from.bytes(UVERBS_ATTR_CORE_IN)),
      command_(from.in<std::uint32_t>(UVERBS_ATTR_WRITE_CMD)) {}

void carry_out(Ucontext& context, Call& call) {
  switch (pair(call.object(), call.method())) {
    case pair(UVERBS_OBJECT_DEVICE, UVERBS_METHOD_INVOKE_WRITE):
      return carry_out_write(context, Write(call));
    case pair(UVERBS_OBJECT_DEVICE, UVERBS_METHOD_GET_CONTEXT):
      return device_calls::get_context(context, call);
    case pair(UVERBS_OBJECT_DEVICE, UVERBS_METHOD_QUERY_PORT):
      return device_calls::query_port(context, call);
    case pair(UVERBS_OBJECT_DEVICE, UVERBS_METHOD_QUERY_GID_TABLE):
      return device_calls::query_gid_table(context, call);
    case pair(UVERBS_OBJECT_DEVICE, UVERBS_METHOD_QUERY_GID_ENTRY):
      return device_calls::query_gid_entry(context, call);
    case pair(UVERBS_OBJECT_ASYNC_EVENT, UVERBS_METHOD_ASYNC_EVENT_ALLOC):
      return device_calls::alloc_async_events(context, call);
    case pair(MLX5_IB_OBJECT_UAR, MLX5_IB_METHOD_UAR_OBJ_ALLOC):
      return device_calls::alloc_uar(context, call);
    case pair(MLX5_IB_OBJECT_UAR, MLX5_IB_METHOD_UAR_OBJ_DESTROY):
      return device_calls::destroy_uar(context, call);
    case pair(MLX5_IB_OBJECT_DEVX, MLX5_IB_METHOD_DEVX_OTHER): return devx_calls::general(call);
    case pair(MLX5_IB_OBJECT_DEVX, MLX5_IB_METHOD_DEVX_QUERY_EQN):
      return devx_calls::query_eqn(call);
    case pair(MLX5_IB_OBJECT_DEVX, MLX5_IB_METHOD_DEVX_QUERY_UAR):
      return devx_calls::query_uar(call);
    case pair(MLX5_IB_OBJECT_DEVX_UMEM, MLX5_IB_METHOD_DEVX_UMEM_REG):
      return devx_calls::reg_umem(context, call);
    case pair(MLX5_IB_OBJECT_DEVX_UMEM, MLX5_IB_METHOD_DEVX_UMEM_DEREG):
      return devx_calls::dereg_umem(context, call);
    case pair(MLX5_IB_OBJECT_DEVX_OBJ, MLX5_IB_METHOD_DEVX_OBJ_CREATE):
      return devx_calls::create(context, call);
    case pair(MLX5_IB_OBJECT_DEVX_OBJ, MLX5_IB_METHOD_DEVX_OBJ_MODIFY):
      return devx_calls::modify(context, call);
    case pair(MLX5_IB_OBJECT_DEVX_OBJ, MLX5_IB_METHOD_DEVX_OBJ_QUERY):
      return devx_calls::query(context, call);
    case pair(MLX5_IB_OBJECT_DEVX_OBJ, MLX5_IB_METHOD_DEVX_OBJ_DESTROY):
      return devx_calls::destroy(context, call);
    case pair(UVERBS_OBJECT_PD, UVERBS_METHOD_PD_DESTROY):
      return memory_calls::dealloc_pd(context, call);
    case pair(UVERBS_OBJECT_AH, UVERBS_METHOD_AH_DESTROY): return ah_calls::destroy(context, call);
    case pair(UVERBS_OBJECT_MR, UVERBS_METHOD_REG_DMABUF_MR):
      return memory_calls::reg_dmabuf_mr(context, call);
    case pair(UVERBS_OBJECT_MR, UVERBS_METHOD_MR_DESTROY):
      return memory_calls::dereg_mr(context, call);
    case pair(UVERBS_OBJECT_CQ, UVERBS_METHOD_CQ_CREATE): return cq_calls::create(context, call);
    case pair(UVERBS_OBJECT_CQ, UVERBS_METHOD_CQ_DESTROY): return cq_calls::destroy(context, call);
    case pair(UVERBS_OBJECT_SRQ, UVERBS_METHOD_SRQ_CREATE): return srq_calls::create(context, call);
    case pair(UVERBS_OBJECT_SRQ, UVERBS_METHOD_SRQ_DESTROY):
      return srq_calls::destroy(context, call);
    case pair(UVERBS_OBJECT_QP, UVERBS_METHOD_QP_CREATE): return qp_calls::create(context, call);
    case pair(UVERBS_OBJECT_QP, UVERBS_METHOD_QP_DESTROY): return qp_calls::destroy(context, call);
    default: throw Refused{EOPNOTSUPP};
  }
}

}  // namespace zerohop::mlx5sim
