#include "refusals.hpp"

#include <rdma/ib_user_ioctl_cmds.h>
#include <rdma/mlx5_user_ioctl_cmds.h>
#include <rdma/mlx5_user_ioctl_verbs.h>

#include <atomic>
#include <cstdio>
#include <cstdlib>

namespace zerohop::mlx5sim::refusals {
namespace {

std::atomic<int> commands_left{0};  // 0: none is refused
std::atomic<int> with{0};
std::atomic<int> hit{0};  // object << 16 | method, or the command of the write(2) interface

// rdma-core 44 does not look whether it got this page, and writes to it.
bool breaks_libmlx5(const Call& call) {
  return call.object() == MLX5_IB_OBJECT_UAR && call.method() == MLX5_IB_METHOD_UAR_OBJ_ALLOC &&
         call.in<std::uint64_t>(MLX5_IB_ATTR_UAR_OBJ_ALLOC_TYPE) == MLX5_IB_UAPI_UAR_ALLOC_TYPE_NC;
}

int name_of(const Call& call) {
  if (call.has(UVERBS_ATTR_WRITE_CMD) && call.object() == UVERBS_OBJECT_DEVICE &&
      call.method() == UVERBS_METHOD_INVOKE_WRITE) {
    return call.in<int>(UVERBS_ATTR_WRITE_CMD);
  }
  return call.object() << 16 | call.method();
}

// Of MLX5SIM_REFUSE; none: with is 0.
struct Always {
  int name = 0;
  int with = 0;
};

Always read_always() {
  const char* const text = std::getenv("MLX5SIM_REFUSE");
  unsigned object = 0, method = 0;
  int error = 0;
  if (text == nullptr || std::sscanf(text, "%x.%x=%d", &object, &method, &error) != 3) return {};
  return {static_cast<int>(object << 16 | method), error};
}

}  // namespace

bool destroys(const Call& call) {
  switch (call.object() << 16 | call.method()) {
    case UVERBS_OBJECT_PD << 16 | UVERBS_METHOD_PD_DESTROY:
    case UVERBS_OBJECT_MR << 16 | UVERBS_METHOD_MR_DESTROY:
    case UVERBS_OBJECT_CQ << 16 | UVERBS_METHOD_CQ_DESTROY:
    case UVERBS_OBJECT_QP << 16 | UVERBS_METHOD_QP_DESTROY:
    case UVERBS_OBJECT_SRQ << 16 | UVERBS_METHOD_SRQ_DESTROY:
    case MLX5_IB_OBJECT_DEVX_UMEM << 16 | MLX5_IB_METHOD_DEVX_UMEM_DEREG:
    case MLX5_IB_OBJECT_DEVX_OBJ << 16 | MLX5_IB_METHOD_DEVX_OBJ_DESTROY:
    case MLX5_IB_OBJECT_UAR << 16 | MLX5_IB_METHOD_UAR_OBJ_DESTROY: return true;
    default: return false;
  }
}

void check(const Call& call) {
  static const Always always = read_always();
  if (always.with != 0 && name_of(call) == always.name) throw Refused{always.with};
  int left = commands_left.load();
  if (left == 0 || destroys(call) || breaks_libmlx5(call)) return;
  while (left > 0 && !commands_left.compare_exchange_weak(left, left - 1)) {
  }
  if (left != 1) return;
  hit.store(name_of(call));
  throw Refused{with.load()};
}

void plan(int nth, int error) {
  with.store(error);
  hit.store(0);
  commands_left.store(nth);
}

int refused() noexcept { return hit.load(); }

}  // namespace zerohop::mlx5sim::refusals
