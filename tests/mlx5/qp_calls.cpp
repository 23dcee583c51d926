// Queue pairs: how they are made, moved through their states, and found by those of other devices.
#include <arpa/inet.h>
#include <poll.h>
#include <rdma/ib_user_ioctl_verbs.h>
#include <rdma/ib_user_verbs.h>
#include <rdma/mlx5-abi.h>
#include <sys/socket.h>

#include <bit>

#include "commands.hpp"
#include "softhca/context.hpp"
#include "softhca/device.hpp"
#include "softhca/gid.hpp"
#include "softhca/queue_pair.hpp"
#include "tree.hpp"

namespace zerohop::mlx5sim::qp_calls {
namespace {

QpRings rings_of(const mlx5_ib_create_qp& asked) {
  QpRings rings;
  if (asked.buf_addr == 0 || asked.db_addr == 0) throw Refused{EFAULT};
  const bool sizes = (asked.sq_wqe_count == 0 || std::has_single_bit(asked.sq_wqe_count)) &&
                     (asked.rq_wqe_count == 0 || std::has_single_bit(asked.rq_wqe_count)) &&
                     asked.rq_wqe_shift <= 9;
  if (!sizes || (asked.flags & MLX5_QP_FLAG_UAR_PAGE_INDEX) == 0) throw Refused{EINVAL};
  if ((asked.flags & MLX5_QP_FLAG_SIGNATURE) != 0) throw Refused{EOPNOTSUPP};
  rings.receives = QueueMemory(asked.buf_addr);
  rings.receive_count = asked.rq_wqe_count;
  rings.receive_nbytes = 1u << asked.rq_wqe_shift;
  const std::size_t receives = std::size_t{asked.rq_wqe_count} << asked.rq_wqe_shift;
  rings.sends = rings.receives + receives;
  rings.send_blocks = asked.sq_wqe_count;
  rings.record = QueueMemory(asked.db_addr);
  rings.user_index = asked.uidx;
  rings.page = asked.bfreg_index;
  rings.scatters = (asked.flags & MLX5_QP_FLAG_SCATTER_CQE) != 0;
  return rings;
}

// Enough for whatever the rings can hold.
ibv_qp_cap cap_below(const QpRings& rings, const ibv_qp_cap& asked) {
  ibv_qp_cap cap{};
  cap.max_send_wr = std::max(rings.send_blocks, 1u);
  cap.max_recv_wr = std::max(rings.receive_count, 1u);
  cap.max_send_sge = std::max(asked.max_send_sge, 1u);
  cap.max_recv_sge = std::max(rings.receive_nbytes / 16, 1u);
  cap.max_inline_data = softhca::limits::kInlineBytes;
  return cap;
}

// A queue pair of the software HCA whose number no other process has.
ibv_qp* make_below(Ucontext& context, ibv_pd* pd, ibv_qp_init_attr& init) {
  for (;;) {
    ibv_qp* soft = softhca::create_qp(pd, &init);
    if (soft == nullptr) throw Refused{errno};
    const tree::Where where{softhca::Context::of(context.soft).gid()};
    if (tree::announce(context.device, soft->qp_num, where)) return soft;
    const bool taken = errno == EEXIST;
    softhca::destroy_qp(soft);
    if (!taken) throw Refused{ENOMEM};
  }
}

// An adapter has acknowledged what arrived before anybody saw it, and says no more. The software
// HCA may owe that; and if it closed a connection with bytes that were not read, the peer's kernel
// would drop what the peer has not read either.
void take_leave(Qp& qp) {
  constexpr int kMostTurns = 64;
  constexpr int kLooks = 8;
  constexpr int kLookMs = 4;
  softhca::QueuePair& below = softhca::QueuePair::of(qp.soft);
  const std::lock_guard guard(below.lock);
  for (int i = 0; i < kMostTurns && below.connection.is_open() && below.serve(false); ++i) {
  }
  below.acknowledge_late();
  if (below.connection.is_open()) {
    pollfd watched{below.connection.fd(), POLLIN, 0};
    ::shutdown(watched.fd, SHUT_WR);
    for (int i = 0; i < kLooks; ++i) {
      if (::poll(&watched, 1, kLookMs) > 0 && !below.connection.discard_input()) break;
    }
  }
  below.to_error();  // before anybody else finds that the peer has closed, too
}

// Ends what it is doing; what its receives came to is in the queues of the program then.
void stop(Ucontext& context, Qp& qp) {
  if (state_of(qp.soft) != IBV_QPS_RESET) {
    take_leave(qp);
    ibv_qp_attr attributes{};
    attributes.qp_state = IBV_QPS_ERR;
    softhca::modify_qp(qp.soft, &attributes, IBV_QP_STATE);
  }
  context.deliver();
  context.fail(qp);
}

// An address at which nobody listens: requests end when their retries do.
ibv_gid nowhere(int device) {
  sockaddr_in address{};
  address.sin_family = AF_INET;
  ::inet_pton(AF_INET, tree::address(device).c_str(), &address.sin_addr);
  address.sin_port = htons(1);
  return softhca::make_gid(address);
}

ibv_ah_attr path_of(const ib_uverbs_qp_dest& dest) {
  ibv_ah_attr path{};
  std::memcpy(path.grh.dgid.raw, dest.dgid, sizeof dest.dgid);
  path.grh.flow_label = dest.flow_label;
  path.grh.sgid_index = dest.sgid_index;
  path.grh.hop_limit = dest.hop_limit;
  path.grh.traffic_class = dest.traffic_class;
  path.dlid = dest.dlid;
  path.sl = dest.sl;
  path.src_path_bits = dest.src_path_bits;
  path.static_rate = dest.static_rate;
  path.is_global = dest.is_global;
  path.port_num = dest.port_num;
  return path;
}

ib_uverbs_qp_dest dest_of(const ibv_ah_attr& path) {
  ib_uverbs_qp_dest dest{};
  std::memcpy(dest.dgid, path.grh.dgid.raw, sizeof dest.dgid);
  dest.flow_label = path.grh.flow_label;
  dest.sgid_index = path.grh.sgid_index;
  dest.hop_limit = path.grh.hop_limit;
  dest.traffic_class = path.grh.traffic_class;
  dest.dlid = path.dlid;
  dest.sl = path.sl;
  dest.src_path_bits = path.src_path_bits;
  dest.static_rate = path.static_rate;
  dest.is_global = path.is_global;
  dest.port_num = path.port_num;
  return dest;
}

// The path to the queue pair of the software HCA behind the one that the program names.
ibv_ah_attr path_below(const ibv_ah_attr& asked, std::uint32_t qp_number) {
  if (asked.is_global == 0 || asked.port_num != 1 || asked.grh.sgid_index >= tree::kGids) {
    throw Refused{EINVAL};
  }
  // The kernel asks the network for the owner of the address; nobody answers.
  const int device = tree::device_with(asked.grh.dgid);
  if (device < 0) throw Refused{ETIMEDOUT};
  const auto where = tree::find(device, qp_number);
  ibv_ah_attr path{};
  path.is_global = 1;
  path.port_num = 1;
  path.grh.dgid = where ? where->gid : nowhere(device);
  return path;
}

ibv_qp_attr attributes_of(const ib_uverbs_modify_qp& asked) {
  ibv_qp_attr given{};
  given.qp_state = static_cast<ibv_qp_state>(asked.qp_state);
  given.cur_qp_state = static_cast<ibv_qp_state>(asked.cur_qp_state);
  given.path_mtu = static_cast<ibv_mtu>(asked.path_mtu);
  given.rq_psn = asked.rq_psn;
  given.sq_psn = asked.sq_psn;
  given.dest_qp_num = asked.dest_qp_num;
  given.qp_access_flags = asked.qp_access_flags;
  given.ah_attr = path_of(asked.dest);
  given.pkey_index = asked.pkey_index;
  given.max_rd_atomic = asked.max_rd_atomic;
  given.max_dest_rd_atomic = asked.max_dest_rd_atomic;
  given.min_rnr_timer = asked.min_rnr_timer;
  given.port_num = asked.port_num;
  given.timeout = asked.timeout;
  given.retry_cnt = asked.retry_cnt;
  given.rnr_retry = asked.rnr_retry;
  return given;
}

}  // namespace

std::uint32_t add(Ucontext& context, const Plan& plan) {
  if (!context.uars.is_there(plan.rings.page)) throw Refused{EINVAL};
  ibv_qp_init_attr init{};
  init.send_cq = init.recv_cq = context.soft_cq;
  init.srq = plan.srq != nullptr ? plan.srq->soft : nullptr;
  init.cap = cap_below(plan.rings, plan.cap);
  init.qp_type = IBV_QPT_RC;
  ibv_qp* soft = make_below(context, plan.pd, init);
  auto qp = std::make_unique<Qp>(plan.rings, soft, *plan.send_cq, *plan.receive_cq, plan.srq,
                                 plan.cap, plan.user_handle);
  context.by_number.emplace(soft->qp_num, qp.get());
  return context.qps.add(std::move(qp));
}

void create(Ucontext& context, Call& call) {
  const auto asked = call.in<ib_uverbs_qp_cap>(UVERBS_ATTR_CREATE_QP_CAP);
  const auto flags = call.in<std::uint32_t>(UVERBS_ATTR_CREATE_QP_FLAGS, 0u);
  if (call.in<std::uint32_t>(UVERBS_ATTR_CREATE_QP_TYPE) != IB_UVERBS_QPT_RC ||
      (flags & ~std::uint32_t{IB_UVERBS_QP_CREATE_SQ_SIG_ALL}) != 0) {
    throw Refused{EOPNOTSUPP};
  }
  Plan plan;
  plan.rings = rings_of(call.in<mlx5_ib_create_qp>(UVERBS_ATTR_UHW_IN));
  plan.send_cq = &context.cqs.at(call.handle(UVERBS_ATTR_CREATE_QP_SEND_CQ_HANDLE));
  plan.receive_cq = &context.cqs.at(call.handle(UVERBS_ATTR_CREATE_QP_RECV_CQ_HANDLE));
  if (call.has(UVERBS_ATTR_CREATE_QP_SRQ_HANDLE)) {
    plan.srq = &context.srqs.at(call.handle(UVERBS_ATTR_CREATE_QP_SRQ_HANDLE));
  }
  plan.pd = context.pds.at(call.handle(UVERBS_ATTR_CREATE_QP_PD_HANDLE)).soft;
  plan.cap = {asked.max_send_wr, asked.max_recv_wr, asked.max_send_sge, asked.max_recv_sge,
              asked.max_inline_data};
  plan.user_handle = call.in<std::uint64_t>(UVERBS_ATTR_CREATE_QP_USER_HANDLE);
  const std::uint32_t handle = add(context, plan);
  call.out(UVERBS_ATTR_CREATE_QP_RESP_CAP, asked);
  call.out(UVERBS_ATTR_CREATE_QP_RESP_QP_NUM, context.qps.at(handle).number());
  mlx5_ib_create_qp_resp own{};
  own.bfreg_index = plan.rings.page;
  call.out(UVERBS_ATTR_UHW_OUT, own);
  call.made(UVERBS_ATTR_CREATE_QP_HANDLE, handle);
}

void change(Ucontext& context, Qp& qp, const ibv_qp_attr& given, int mask) {
  const bool resets = (mask & IBV_QP_STATE) != 0 && given.qp_state == IBV_QPS_RESET;
  ibv_qp_attr below = given;
  if ((mask & IBV_QP_AV) != 0) below.ah_attr = path_below(given.ah_attr, given.dest_qp_num);
  if (resets) stop(context, qp);
  const bool only_state = (mask & ~(IBV_QP_STATE | IBV_QP_CUR_STATE)) == 0;
  if (only_state && (mask & IBV_QP_STATE) != 0 && given.qp_state == IBV_QPS_ERR) {
    take_leave(qp);
    context.fail(qp);
  }
  if (const int error = softhca::modify_qp(qp.soft, &below, mask); error != 0) {
    throw Refused{error};
  }
  if ((mask & IBV_QP_AV) != 0) qp.attributes.ah_attr = given.ah_attr;
  if ((mask & IBV_QP_STATE) != 0) qp.set = given.qp_state;
  if (!resets) return;
  qp.attributes = {};
  qp.reset();
}

void modify(Ucontext& context, Write& write) {
  const auto asked = write.request<ib_uverbs_modify_qp>();
  change(context, context.qps.at(asked.qp_handle), attributes_of(asked),
         static_cast<int>(asked.attr_mask));
}

void query(Ucontext& context, Write& write) {
  const Qp& qp = context.qps.at(write.request<ib_uverbs_query_qp>().qp_handle);
  ibv_qp_attr now{};
  ibv_qp_init_attr init{};
  if (const int error = softhca::query_qp(qp.soft, &now, 0, &init); error != 0) {
    throw Refused{error};
  }
  ib_uverbs_query_qp_resp found{};
  found.dest = dest_of(qp.attributes.ah_attr);
  found.max_send_wr = qp.cap.max_send_wr;
  found.max_recv_wr = qp.cap.max_recv_wr;
  found.max_send_sge = qp.cap.max_send_sge;
  found.max_recv_sge = qp.cap.max_recv_sge;
  found.max_inline_data = qp.cap.max_inline_data;
  found.rq_psn = now.rq_psn;
  found.sq_psn = now.sq_psn;
  found.dest_qp_num = now.dest_qp_num;
  found.qp_access_flags = now.qp_access_flags;
  found.pkey_index = now.pkey_index;
  found.qp_state = found.cur_qp_state = static_cast<std::uint8_t>(qp.state_shown(now.qp_state));
  found.path_mtu = static_cast<std::uint8_t>(now.path_mtu);
  found.max_rd_atomic = now.max_rd_atomic;
  found.max_dest_rd_atomic = now.max_dest_rd_atomic;
  found.min_rnr_timer = now.min_rnr_timer;
  found.port_num = now.port_num;
  found.timeout = now.timeout;
  found.retry_cnt = now.retry_cnt;
  found.rnr_retry = now.rnr_retry;
  write.respond(found);
}

std::uint32_t remove(Ucontext& context, std::uint32_t handle) {
  Qp& qp = context.qps.at(handle);
  stop(context, qp);
  context.pass_on_events();
  tree::withdraw(context.device, qp.number());
  context.by_number.erase(qp.number());
  if (const int error = softhca::destroy_qp(qp.soft); error != 0) throw Refused{error};
  const std::uint32_t events = context.forget(qp.async);
  context.qps.remove(handle);
  return events;
}

void destroy(Ucontext& context, Call& call) {
  const std::uint32_t events = remove(context, call.handle(UVERBS_ATTR_DESTROY_QP_HANDLE));
  call.out(UVERBS_ATTR_DESTROY_QP_RESP, ib_uverbs_destroy_qp_resp{.events_reported = events});
}

}  // namespace zerohop::mlx5sim::qp_calls
