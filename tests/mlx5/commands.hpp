// The methods of an open device, by objects. Each is called with its lock held, and throws Refused.
#pragma once

#include <rdma/ib_user_ioctl_cmds.h>

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>

#include "ucontext.hpp"

namespace zerohop::mlx5sim {

// What the write(2) interface of older kernels knew: a command with one structure in, one out.
class Write {
 public:
  explicit Write(Call& call);
  std::uint32_t command() const noexcept { return command_; }

  template <typename Request>
  Request request() const {
    Request request{};
    std::memcpy(&request, in_.data(), std::min(in_.size(), sizeof request));
    return request;
  }
  template <typename Response>
  void respond(const Response& response) {
    call.out(UVERBS_ATTR_CORE_OUT, response);
  }
  Call& call;

 private:
  std::span<const std::byte> in_;
  std::uint32_t command_;
};

namespace device_calls {
void get_context(Ucontext& context, Call& call);
void query_port(Ucontext& context, Call& call);
void query_gid_table(Ucontext& context, Call& call);
void query_gid_entry(Ucontext& context, Call& call);
void query_device(Ucontext& context, Write& write);
void alloc_async_events(Ucontext& context, Call& call);
void create_comp_channel(Write& write);
void alloc_uar(Ucontext& context, Call& call);
void destroy_uar(Ucontext& context, Call& call);
}  // namespace device_calls

// Where a GID is on Ethernet, in this simulation.
using Mac = std::array<std::uint8_t, 6>;
Mac mac_of(std::span<const std::uint8_t, 16> gid) noexcept;

namespace ah_calls {
void create(Ucontext& context, Write& write);
void destroy(Ucontext& context, Call& call);
}  // namespace ah_calls

namespace memory_calls {
void alloc_pd(Ucontext& context, Write& write);
void dealloc_pd(Ucontext& context, Call& call);
void reg_mr(Ucontext& context, Write& write);
void reg_dmabuf_mr(Ucontext& context, Call& call);
void dereg_mr(Ucontext& context, Call& call);
}  // namespace memory_calls

namespace cq_calls {
void create(Ucontext& context, Call& call);
void resize(Ucontext& context, Write& write);
void destroy(Ucontext& context, Call& call);
}  // namespace cq_calls

namespace srq_calls {
void create(Ucontext& context, Call& call);
void modify(Ucontext& context, Write& write);
void query(Ucontext& context, Write& write);
void destroy(Ucontext& context, Call& call);
}  // namespace srq_calls

namespace qp_calls {
// A queue pair whose rings are known.
struct Plan {
  QpRings rings;
  Cq* send_cq = nullptr;
  Cq* receive_cq = nullptr;
  Srq* srq = nullptr;
  ibv_pd* pd = nullptr;
  ibv_qp_cap cap{};
  std::uint64_t user_handle = 0;  // 0: no events about it
};
std::uint32_t add(Ucontext& context, const Plan& plan);  // its handle
void change(Ucontext& context, Qp& qp, const ibv_qp_attr& given, int mask);
std::uint32_t remove(Ucontext& context, std::uint32_t handle);  // how many events were read

void create(Ucontext& context, Call& call);
void modify(Ucontext& context, Write& write);
void query(Ucontext& context, Write& write);
void destroy(Ucontext& context, Call& call);
}  // namespace qp_calls

namespace devx_calls {
void general(Call& call);
void query_eqn(Call& call);
void query_uar(Call& call);
void reg_umem(Ucontext& context, Call& call);
void dereg_umem(Ucontext& context, Call& call);
void create(Ucontext& context, Call& call);
void modify(Ucontext& context, Call& call);
void query(Ucontext& context, Call& call);
void destroy(Ucontext& context, Call& call);
}  // namespace devx_calls

}  // namespace zerohop::mlx5sim
