// Protection domains and memory regions.
#include <fcntl.h>
#include <rdma/ib_user_verbs.h>
#include <rdma/mlx5-abi.h>

#include "commands.hpp"
#include "softhca/memory_table.hpp"
#include "softhca/protection_domain.hpp"

namespace zerohop::mlx5sim::memory_calls {
namespace {

std::uint32_t keep(Ucontext& context, ibv_mr* made) {
  if (made == nullptr) throw Refused{errno};
  return context.mrs.add(std::make_unique<Mr>(Mr{made}));
}

// Of a GPU.
ibv_mr* reg_copied(ibv_pd* pd, const ib_uverbs_reg_mr& asked,
                   std::shared_ptr<driver::Copier> copier) {
  if (asked.hca_va != asked.start) throw Refused{EOPNOTSUPP};
  return softhca::reg_copied_mr(pd, asked.start, asked.length, static_cast<int>(asked.access_flags),
                                std::move(copier));
}

}  // namespace

void alloc_pd(Ucontext& context, Write& write) {
  ibv_pd* made = softhca::alloc_pd(context.soft);
  if (made == nullptr) throw Refused{errno};
  const std::uint32_t handle = context.pds.add(std::make_unique<Pd>(Pd{made}));
  write.respond(ib_uverbs_alloc_pd_resp{.pd_handle = handle});
  write.call.out(UVERBS_ATTR_UHW_OUT, mlx5_ib_alloc_pd_resp{.pdn = handle});
}

void dealloc_pd(Ucontext& context, Call& call) {
  const std::uint32_t handle = call.handle(UVERBS_ATTR_DESTROY_PD_HANDLE);
  if (const int error = softhca::dealloc_pd(context.pds.at(handle).soft); error != 0) {
    throw Refused{error};
  }
  context.pds.remove(handle);
}

void reg_mr(Ucontext& context, Write& write) {
  const auto asked = write.request<ib_uverbs_reg_mr>();
  // Both have the same place in a page, as the adapter maps pages.
  if (((asked.start ^ asked.hca_va) & (context.uars.page_nbytes() - 1)) != 0) throw Refused{EINVAL};
  ibv_pd* pd = context.pds.at(asked.pd_handle).soft;
  auto copier = context.peer_memory.copier(asked.start, asked.length);
  ibv_mr* made = copier ? reg_copied(pd, asked, std::move(copier))
                        : softhca::reg_mr_iova2(pd, reinterpret_cast<void*>(asked.start),
                                                asked.length, asked.hca_va, asked.access_flags);
  const std::uint32_t handle = keep(context, made);
  write.respond(ib_uverbs_reg_mr_resp{.mr_handle = handle, .lkey = made->lkey, .rkey = made->rkey});
}

void reg_dmabuf_mr(Ucontext& context, Call& call) {
  const auto offset = call.in<std::uint64_t>(UVERBS_ATTR_REG_DMABUF_MR_OFFSET);
  const auto iova = call.in<std::uint64_t>(UVERBS_ATTR_REG_DMABUF_MR_IOVA);
  if (((offset ^ iova) & (context.uars.page_nbytes() - 1)) != 0) throw Refused{EINVAL};
  ibv_mr* made =
      softhca::reg_dmabuf_mr(context.pds.at(call.handle(UVERBS_ATTR_REG_DMABUF_MR_PD_HANDLE)).soft,
                             offset, call.in<std::uint64_t>(UVERBS_ATTR_REG_DMABUF_MR_LENGTH), iova,
                             call.in<int>(UVERBS_ATTR_REG_DMABUF_MR_FD),
                             call.in<int>(UVERBS_ATTR_REG_DMABUF_MR_ACCESS_FLAGS));
  const std::uint32_t handle = keep(context, made);
  call.out(UVERBS_ATTR_REG_DMABUF_MR_RESP_LKEY, made->lkey);
  call.out(UVERBS_ATTR_REG_DMABUF_MR_RESP_RKEY, made->rkey);
  call.made(UVERBS_ATTR_REG_DMABUF_MR_HANDLE, handle);
}

void dereg_mr(Ucontext& context, Call& call) {
  const std::uint32_t handle = call.handle(UVERBS_ATTR_DESTROY_MR_HANDLE);
  softhca::dereg_mr(context.mrs.at(handle).soft);
  context.mrs.remove(handle);
}

}  // namespace zerohop::mlx5sim::memory_calls
