// What an open device is, and its descriptors of events and pages of doorbells.
#include <endian.h>
#include <net/if.h>
#include <rdma/ib_user_ioctl_verbs.h>
#include <rdma/ib_user_verbs.h>
#include <rdma/mlx5-abi.h>
#include <rdma/mlx5_user_ioctl_cmds.h>
#include <rdma/mlx5_user_ioctl_verbs.h>

#include <charconv>

#include "commands.hpp"
#include "files.hpp"
#include "softhca/device.hpp"
#include "tree.hpp"

namespace zerohop::mlx5sim::device_calls {
namespace {

// As an adapter has them, but no more than the software HCA carries out.
constexpr std::uint32_t kMostQueuePairs = 1u << 18;
constexpr std::uint32_t kMostBlocks = 1u << 15;  // of a send queue
constexpr std::uint32_t kMostReceives = 1u << 15;
constexpr std::uint16_t kEntryNbytes = 512;  // the largest, of a send or receive queue
// What is left for elements, 16 bytes each, behind control segment and remote address.
constexpr std::uint32_t kMostElements = (kEntryNbytes - 16 - 16) / 16;
static_assert(kMostElements <= softhca::limits::kSge);
constexpr std::uint32_t kRegisterNbytes = 512;
constexpr std::uint8_t kEthernet = 2;  // ib_port_attr::link_layer

ib_uverbs_gid_entry gid_entry(const Ucontext& context, int index) {
  const ibv_gid gid = tree::gid(context.device, index);
  ib_uverbs_gid_entry entry{};
  std::memcpy(entry.gid, gid.raw, sizeof gid.raw);
  entry.gid_index = static_cast<std::uint32_t>(index);
  entry.port_num = 1;
  entry.gid_type = tree::gid_type(index);
  entry.netdev_ifindex = ::if_nametoindex("lo");
  return entry;
}

// "4: ACTIVE" -> 4
std::uint8_t leading_number(const std::string& text) {
  unsigned number = 0;
  std::from_chars(text.data(), text.data() + text.size(), number);
  return static_cast<std::uint8_t>(number);
}

}  // namespace

void get_context(Ucontext& context, Call& call) {
  const auto asked = call.in<mlx5_ib_alloc_ucontext_req_v2>(UVERBS_ATTR_UHW_IN);
  if ((asked.lib_caps & MLX5_LIB_CAP_DYN_UAR) == 0) throw Refused{EOPNOTSUPP};
  mlx5_ib_alloc_ucontext_resp granted{};
  granted.qp_tab_size = kMostQueuePairs;
  granted.bf_reg_size = kRegisterNbytes;
  granted.tot_bfregs = 0;  // pages of doorbells are asked for one by one
  granted.cache_line_size = 64;
  granted.max_sq_desc_sz = kEntryNbytes;
  granted.max_rq_desc_sz = kEntryNbytes;
  granted.max_send_wqebb = kMostBlocks;
  granted.max_recv_wr = kMostReceives;
  granted.max_srq_recv_wr = kMostReceives - 1;
  granted.num_ports = 1;
  granted.response_length = sizeof granted;
  granted.cqe_version = std::min<std::uint8_t>(asked.max_cqe_version, 1);
  granted.cmds_supp_uhw = MLX5_USER_CMDS_SUPP_UHW_QUERY_DEVICE | MLX5_USER_CMDS_SUPP_UHW_CREATE_AH;
  granted.eth_min_inline = MLX5_USER_INLINE_MODE_NONE;
  granted.log_uar_size = 12;
  granted.num_uars_per_page = static_cast<std::uint32_t>(context.uars.page_nbytes() >> 12);
  granted.num_dyn_bfregs = UarPages::kMost;
  if (granted.cqe_version != 1) throw Refused{EOPNOTSUPP};
  call.out(UVERBS_ATTR_UHW_OUT, granted);
  call.out(UVERBS_ATTR_GET_CONTEXT_NUM_COMP_VECTORS, std::uint32_t{1});
  call.out(UVERBS_ATTR_GET_CONTEXT_CORE_SUPPORT,
           std::uint64_t{IB_UVERBS_CORE_SUPPORT_OPTIONAL_MR_ACCESS});
}

void query_port(Ucontext& context, Call& call) {
  if (call.in<std::uint8_t>(UVERBS_ATTR_QUERY_PORT_PORT_NUM) != 1) throw Refused{EINVAL};
  ibv_port_attr below{};
  if (const int error = softhca::query_port(context.soft, 1, &below); error != 0) {
    throw Refused{error};
  }
  ib_uverbs_query_port_resp_ex found{};
  ib_uverbs_query_port_resp& port = found.legacy_resp;
  port.max_msg_sz = below.max_msg_sz;
  port.gid_tbl_len = tree::kGids;
  port.pkey_tbl_len = 1;
  port.state = leading_number(tree::attribute(context.device, "ports/1/state"));
  port.max_mtu = IBV_MTU_4096;
  port.active_mtu = IBV_MTU_4096;
  port.max_vl_num = 1;
  port.active_width = below.active_width;
  port.active_speed = below.active_speed;
  port.phys_state = leading_number(tree::attribute(context.device, "ports/1/phys_state"));
  port.link_layer = kEthernet;
  port.flags = IB_UVERBS_QPF_GRH_REQUIRED;
  call.out(UVERBS_ATTR_QUERY_PORT_RESP, found);
}

void query_gid_table(Ucontext& context, Call& call) {
  const auto size = call.in<std::uint64_t>(UVERBS_ATTR_QUERY_GID_TABLE_ENTRY_SIZE);
  const auto room = call.room(UVERBS_ATTR_QUERY_GID_TABLE_RESP_ENTRIES);
  std::uint64_t count = 0;
  for (int index = 0; index < tree::kGids; ++index) {
    const ib_uverbs_gid_entry entry = gid_entry(context, index);
    if (size < sizeof entry || room.size() < (count + 1) * size) throw Refused{EINVAL};
    std::memcpy(room.data() + count++ * size, &entry, sizeof entry);
  }
  call.out(UVERBS_ATTR_QUERY_GID_TABLE_RESP_NUM_ENTRIES, count);
}

void query_gid_entry(Ucontext& context, Call& call) {
  const auto index = call.in<std::uint32_t>(UVERBS_ATTR_QUERY_GID_ENTRY_GID_INDEX);
  if (call.in<std::uint32_t>(UVERBS_ATTR_QUERY_GID_ENTRY_PORT) != 1) throw Refused{EINVAL};
  if (index >= tree::kGids) throw Refused{EINVAL};
  call.out(UVERBS_ATTR_QUERY_GID_ENTRY_RESP_ENTRY, gid_entry(context, static_cast<int>(index)));
}

void query_device(Ucontext& context, Write& write) {
  // libibverbs asks in this way whether there is an ioctl(2) for these commands.
  if (!write.call.has(UVERBS_ATTR_CORE_OUT)) throw Refused{ENOSPC};
  ibv_device_attr below{};
  if (const int error = softhca::query_device(context.soft, &below); error != 0) {
    throw Refused{error};
  }
  ib_uverbs_ex_query_device_resp found{};
  ib_uverbs_query_device_resp& base = found.base;
  base.node_guid = base.sys_image_guid =
      htobe64(0x0200'00ff'fe00'0001 + static_cast<std::uint64_t>(context.device));
  base.max_mr_size = below.max_mr_size;
  base.page_size_cap = ~std::uint64_t{4095};
  base.max_qp = kMostQueuePairs;
  base.max_qp_wr = kMostBlocks;
  base.device_cap_flags = IBV_DEVICE_RC_RNR_NAK_GEN;
  base.max_sge = base.max_sge_rd = kMostElements;
  base.max_cq = 1u << 24;
  base.max_cqe = (1u << 22) - 1;
  base.max_mr = 1u << 24;
  base.max_pd = 1u << 23;
  base.max_qp_rd_atom = base.max_qp_init_rd_atom = static_cast<std::uint32_t>(below.max_qp_rd_atom);
  base.max_res_rd_atom = kMostQueuePairs;
  base.atomic_cap = IBV_ATOMIC_HCA;
  base.max_srq = 1u << 23;
  base.max_srq_wr = kMostReceives - 1;
  base.max_srq_sge = kMostElements;
  base.max_pkeys = 1;
  base.phys_port_cnt = 1;
  found.response_length = sizeof found;
  write.respond(found);
  mlx5_ib_query_device_resp own{};
  own.response_length = sizeof own;
  write.call.out(UVERBS_ATTR_UHW_OUT, own);
}

void alloc_async_events(Ucontext& context, Call& call) {
  const auto file = files::add_events();
  context.async = file;
  call.made(UVERBS_ATTR_ASYNC_EVENT_ALLOC_FD_HANDLE, static_cast<std::uint32_t>(file->fd()));
}

void create_comp_channel(Write& write) {
  const auto file = files::add_events();
  write.respond(ib_uverbs_create_comp_channel_resp{.fd = static_cast<std::uint32_t>(file->fd())});
}

void alloc_uar(Ucontext& context, Call& call) {
  const std::uint32_t page = context.uars.add();
  call.out(MLX5_IB_ATTR_UAR_OBJ_ALLOC_MMAP_OFFSET, context.uars.offset_of(page));
  call.out(MLX5_IB_ATTR_UAR_OBJ_ALLOC_MMAP_LENGTH,
           static_cast<std::uint32_t>(context.uars.page_nbytes()));
  call.out(MLX5_IB_ATTR_UAR_OBJ_ALLOC_PAGE_ID, page);
  call.made(MLX5_IB_ATTR_UAR_OBJ_ALLOC_HANDLE, page);
}

void destroy_uar(Ucontext& context, Call& call) {
  const std::uint32_t page = call.handle(MLX5_IB_ATTR_UAR_OBJ_DESTROY_HANDLE);
  if (!context.uars.is_there(page)) throw Refused{EINVAL};
  for (const auto& [handle, qp] : context.qps) {
    if (qp->page() == page) throw Refused{EBUSY};
  }
  context.uars.remove(page);
}

}  // namespace zerohop::mlx5sim::device_calls
