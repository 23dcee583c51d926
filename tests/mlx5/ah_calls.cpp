// Address handles, which tell a program where a GID is on Ethernet.
#include <rdma/ib_user_verbs.h>
#include <rdma/mlx5-abi.h>

#include "commands.hpp"

namespace zerohop::mlx5sim {

Mac mac_of(std::span<const std::uint8_t, 16> gid) noexcept {
  constexpr std::uint8_t kLocal = 0x02;  // administered locally: nobody's
  return {kLocal, 0, gid[12], gid[13], gid[14], gid[15]};
}

namespace ah_calls {

void create(Ucontext& context, Write& write) {
  const auto asked = write.request<ib_uverbs_create_ah>();
  (void)context.pds.at(asked.pd_handle);
  if (asked.attr.is_global == 0 || asked.attr.port_num != 1) throw Refused{EINVAL};  // on Ethernet
  const std::uint32_t handle = context.ahs.add(std::make_unique<Ah>());
  write.respond(ib_uverbs_create_ah_resp{.ah_handle = handle});
  mlx5_ib_create_ah_resp own{};
  own.response_length = sizeof own;
  std::ranges::copy(mac_of(asked.attr.grh.dgid), own.dmac);
  write.call.out(UVERBS_ATTR_UHW_OUT, own);
}

void destroy(Ucontext& context, Call& call) {
  const std::uint32_t handle = call.handle(UVERBS_ATTR_DESTROY_AH_HANDLE);
  (void)context.ahs.at(handle);
  context.ahs.remove(handle);
}

}  // namespace ah_calls
}  // namespace zerohop::mlx5sim
