#include "rdma/refusal.hpp"

#include <algorithm>
#include <cerrno>
#include <string>

#include "base/error.hpp"
#include "driver/verbs_call.hpp"

namespace zerohop::rdma {
namespace {

constexpr std::uint32_t k24Bits = 0xffffff;

// Collects "name=value (limit)" for the attributes in the mask, and for those that break a limit.
class Attributes {
 public:
  Attributes(const ibv_qp_attr& attributes, int mask) : values_(attributes), mask_(mask) {}

  void check(int bit, const char* name, std::uint64_t value, std::uint64_t least,
             std::uint64_t most) {
    if ((mask_ & bit) == 0) return;
    const std::string text = std::string(name) + "=" + std::to_string(value);
    append(all_, text);
    if (value >= least && value <= most) return;
    append(broken_,
           text + " (allowed: " + std::to_string(least) + " to " + std::to_string(most) + ")");
  }

  void check_all(const ibv_device_attr& device, const ibv_port_attr& port) {
    const auto limit = [](int most) { return static_cast<std::uint64_t>(std::max(most, 0)); };
    check(IBV_QP_PORT, "port_num", values_.port_num, 1, device.phys_port_cnt);
    check(IBV_QP_PKEY_INDEX, "pkey_index", values_.pkey_index, 0, limit(device.max_pkeys - 1));
    check(IBV_QP_ACCESS_FLAGS, "qp_access_flags", values_.qp_access_flags, 0, 0x7fffffff);
    check(IBV_QP_PATH_MTU, "path_mtu", values_.path_mtu, IBV_MTU_256, port.active_mtu);
    check(IBV_QP_DEST_QPN, "dest_qp_num", values_.dest_qp_num, 2, k24Bits);  // 0 and 1 are special
    check(IBV_QP_RQ_PSN, "rq_psn", values_.rq_psn, 0, k24Bits);
    check(IBV_QP_SQ_PSN, "sq_psn", values_.sq_psn, 0, k24Bits);
    check(IBV_QP_MAX_DEST_RD_ATOMIC, "max_dest_rd_atomic", values_.max_dest_rd_atomic, 0,
          limit(device.max_qp_rd_atom));
    check(IBV_QP_MAX_QP_RD_ATOMIC, "max_rd_atomic", values_.max_rd_atomic, 0,
          limit(device.max_qp_init_rd_atom));
    check(IBV_QP_MIN_RNR_TIMER, "min_rnr_timer", values_.min_rnr_timer, 0, 31);
    check(IBV_QP_TIMEOUT, "timeout", values_.timeout, 0, 31);
    check(IBV_QP_RETRY_CNT, "retry_cnt", values_.retry_cnt, 0, 7);
    check(IBV_QP_RNR_RETRY, "rnr_retry", values_.rnr_retry, 0, 7);
    check(IBV_QP_AV, "sl", values_.ah_attr.sl, 0, 15);
    check(IBV_QP_AV, "sgid_index", values_.ah_attr.grh.sgid_index, 0, limit(port.gid_tbl_len - 1));
  }

  const std::string& all() const noexcept { return all_; }
  const std::string& broken() const noexcept { return broken_; }

 private:
  static void append(std::string& list, const std::string& text) {
    list += (list.empty() ? "" : ", ") + text;
  }
  const ibv_qp_attr& values_;
  int mask_;
  std::string all_;
  std::string broken_;
};

// Whether the specification allows this transition. RESET and ERR are always reachable.
bool is_legal(ibv_qp_state from, ibv_qp_state to) noexcept {
  switch (to) {
    case IBV_QPS_INIT: return from == IBV_QPS_RESET || from == IBV_QPS_INIT;
    case IBV_QPS_RTR: return from == IBV_QPS_INIT;
    case IBV_QPS_RTS: return from == IBV_QPS_RTR || from == IBV_QPS_RTS || from == IBV_QPS_SQD;
    default: return true;
  }
}

std::string cause_of_einval(const QueuePair& queue_pair, const ibv_qp_attr& attributes, int mask) {
  const ibv_qp_state from = queue_pair.state();
  if (!is_legal(from, attributes.qp_state)) {
    return std::string("the queue pair is in state ") + state_name(from) +
           ": go through RESET, INIT, RTR and RTS in this order";
  }
  const ibv_port_attr port = queue_pair.device().port_attributes();
  if (port.state != IBV_PORT_ACTIVE) {
    return "port " + std::to_string(queue_pair.device().port()) + " of " +
           queue_pair.device().name() + " is not active: bring the link up";
  }
  Attributes list(attributes, mask);
  list.check_all(queue_pair.device().attributes(), port);
  if (!list.broken().empty()) return "refused because of " + list.broken();
  if ((mask & IBV_QP_AV) != 0) {
    return "the device refuses the path to the remote GID, or one of " + list.all() +
           ": try another gid_index";
  }
  return list.all().empty() ? "the device gives no reason"
                            : "the device refuses one of " + list.all();
}

}  // namespace

const char* state_name(ibv_qp_state state) noexcept {
  switch (state) {
    case IBV_QPS_RESET: return "RESET";
    case IBV_QPS_INIT: return "INIT";
    case IBV_QPS_RTR: return "RTR";
    case IBV_QPS_RTS: return "RTS";
    case IBV_QPS_SQD: return "SQD";
    case IBV_QPS_SQE: return "SQE";
    case IBV_QPS_ERR: return "ERR";
    case IBV_QPS_UNKNOWN: break;
  }
  return "UNKNOWN";
}

void throw_refusal(const QueuePair& queue_pair, const ibv_qp_attr& attributes, int mask,
                   int result) {
  const int error_number = driver::errno_of(result);
  const std::string what = "queue pair " + std::to_string(queue_pair.number()) + " on " +
                           queue_pair.device().name() + " cannot go to " +
                           state_name(attributes.qp_state);
  if (error_number != EINVAL) driver::throw_verbs_error(what, error_number);
  throw VerbsError(
      errno_message(what, EINVAL) + "; " + cause_of_einval(queue_pair, attributes, mask), EINVAL);
}

}  // namespace zerohop::rdma
