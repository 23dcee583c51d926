// ibv_modify_qp: the transitions, their required attributes, and their effects.
#include <algorithm>
#include <cerrno>
#include <cstring>

#include "softhca/context.hpp"
#include "softhca/gid.hpp"
#include "softhca/queue_pair.hpp"

namespace zerohop::softhca {
namespace {

constexpr std::uint32_t kPsnMask = 0xffffff;  // packet sequence numbers have 24 bits

struct Transition {
  ibv_qp_state from;
  ibv_qp_state to;
  int required;
  int optional;
};

constexpr int kAlways = IBV_QP_STATE | IBV_QP_CUR_STATE;

// The RC rows of the table in man ibv_modify_qp, without alternate paths and the send queue drain,
// which this device lacks. RESET and ERR can be reached from every state.
constexpr Transition kTransitions[] = {
    {IBV_QPS_RESET, IBV_QPS_INIT, IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_ACCESS_FLAGS, 0},
    {IBV_QPS_INIT, IBV_QPS_INIT, 0, IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_ACCESS_FLAGS},
    {IBV_QPS_INIT, IBV_QPS_RTR,
     IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN | IBV_QP_RQ_PSN | IBV_QP_MAX_DEST_RD_ATOMIC |
         IBV_QP_MIN_RNR_TIMER,
     IBV_QP_PKEY_INDEX | IBV_QP_ACCESS_FLAGS},
    {IBV_QPS_RTR, IBV_QPS_RTS,
     IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY | IBV_QP_SQ_PSN | IBV_QP_MAX_QP_RD_ATOMIC,
     IBV_QP_ACCESS_FLAGS | IBV_QP_MIN_RNR_TIMER},
    {IBV_QPS_RTS, IBV_QPS_RTS, 0, IBV_QP_ACCESS_FLAGS | IBV_QP_MIN_RNR_TIMER},
};

bool is_allowed(ibv_qp_state from, ibv_qp_state to, int mask) {
  if (to == IBV_QPS_RESET || to == IBV_QPS_ERR) return (mask & ~kAlways) == 0;
  return std::ranges::any_of(kTransitions, [&](const Transition& row) {
    return row.from == from && row.to == to && (mask & row.required) == row.required &&
           (mask & ~(row.required | row.optional | kAlways)) == 0;
  });
}

bool are_valid(const ibv_qp_attr& given, int mask) {
  const auto has = [mask](int bit) { return (mask & bit) != 0; };
  if (has(IBV_QP_PORT) && given.port_num != 1) return false;
  if (has(IBV_QP_PKEY_INDEX) && given.pkey_index != 0) return false;
  if (has(IBV_QP_PATH_MTU) && (given.path_mtu < IBV_MTU_256 || given.path_mtu > IBV_MTU_4096)) {
    return false;
  }
  if (has(IBV_QP_MAX_DEST_RD_ATOMIC) && given.max_dest_rd_atomic > limits::kReadsAndAtomics) {
    return false;
  }
  if (has(IBV_QP_MAX_QP_RD_ATOMIC) && given.max_rd_atomic > limits::kReadsAndAtomics) return false;
  if (has(IBV_QP_TIMEOUT) && given.timeout > 31) return false;
  if (has(IBV_QP_RETRY_CNT) && given.retry_cnt > 7) return false;
  if (has(IBV_QP_RNR_RETRY) && given.rnr_retry > 7) return false;
  if (has(IBV_QP_MIN_RNR_TIMER) && given.min_rnr_timer > 31) return false;
  return !has(IBV_QP_AV) ||
         (given.ah_attr.is_global != 0 && given.ah_attr.port_num == 1 &&
          given.ah_attr.grh.sgid_index == 0 && is_soft_gid(given.ah_attr.grh.dgid));
}

void store(ibv_qp_attr& kept, const ibv_qp_attr& given, int mask) {
  const auto has = [mask](int bit) { return (mask & bit) != 0; };
  if (has(IBV_QP_PKEY_INDEX)) kept.pkey_index = given.pkey_index;
  if (has(IBV_QP_PORT)) kept.port_num = given.port_num;
  if (has(IBV_QP_ACCESS_FLAGS)) kept.qp_access_flags = given.qp_access_flags;
  if (has(IBV_QP_AV)) kept.ah_attr = given.ah_attr;
  if (has(IBV_QP_PATH_MTU)) kept.path_mtu = given.path_mtu;
  if (has(IBV_QP_DEST_QPN)) kept.dest_qp_num = given.dest_qp_num;
  if (has(IBV_QP_RQ_PSN)) kept.rq_psn = given.rq_psn & kPsnMask;
  if (has(IBV_QP_MAX_DEST_RD_ATOMIC)) kept.max_dest_rd_atomic = given.max_dest_rd_atomic;
  if (has(IBV_QP_MIN_RNR_TIMER)) kept.min_rnr_timer = given.min_rnr_timer;
  if (has(IBV_QP_TIMEOUT)) kept.timeout = given.timeout;
  if (has(IBV_QP_RETRY_CNT)) kept.retry_cnt = given.retry_cnt;
  if (has(IBV_QP_RNR_RETRY)) kept.rnr_retry = given.rnr_retry;
  if (has(IBV_QP_SQ_PSN)) kept.sq_psn = given.sq_psn & kPsnMask;
  if (has(IBV_QP_MAX_QP_RD_ATOMIC)) kept.max_rd_atomic = given.max_rd_atomic;
}

// One connection has two ends; this device cannot connect a queue pair to itself.
bool is_itself(const QueuePair& qp, const ibv_qp_attr& given) {
  return given.dest_qp_num == qp.qp_num &&
         std::memcmp(given.ah_attr.grh.dgid.raw, qp.device.gid().raw, sizeof(ibv_gid)) == 0;
}

// With QueuePair::lock held.
int enter(QueuePair& qp, const ibv_qp_attr& given, int mask) {
  const ibv_qp_state from = qp.state;
  const ibv_qp_state to = (mask & IBV_QP_STATE) != 0 ? given.qp_state : from;
  if ((mask & IBV_QP_CUR_STATE) != 0 && given.cur_qp_state != from) return EINVAL;
  if (!is_allowed(from, to, mask) || !are_valid(given, mask)) return EINVAL;
  if ((mask & IBV_QP_AV) != 0 && is_itself(qp, given)) return EINVAL;
  const bool leaves = to == IBV_QPS_RESET || to == IBV_QPS_ERR;
  if (!leaves && qp.device.faults.gone()) return EIO;
  if (to == IBV_QPS_RESET) {
    qp.to_reset();
  } else if (to == IBV_QPS_ERR) {
    qp.to_error();
  } else {
    store(qp.attributes, given, mask);
    qp.state = to;
    if (from != to && to == IBV_QPS_RTR) qp.connection.expect_peer();
    if (from != to && to == IBV_QPS_RTS) qp.connection.confirm_own_psn();
  }
  return 0;
}

}  // namespace

int modify_qp(ibv_qp* handle, ibv_qp_attr* given, int mask) {
  QueuePair& qp = QueuePair::of(handle);
  if (qp.device.forked()) return ENODEV;
  std::lock_guard control(qp.device.control);
  {
    std::lock_guard guard(qp.lock);
    if (const int refusal = enter(qp, *given, mask); refusal != 0) return refusal;
  }
  // A connection that the peer dialled before this transition may be parked.
  if (qp.state == IBV_QPS_RTR) qp.device.listener.claim(qp);
  return 0;
}

}  // namespace zerohop::softhca
