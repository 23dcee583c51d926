// The transitions of an RC queue pair. Each mask lists exactly the attributes that the InfiniBand
// specification (volume 1, table 96; man ibv_modify_qp) requires for that transition.
#include <algorithm>
#include <cerrno>

#include "base/error.hpp"
#include "rdma/queue_pair.hpp"
#include "rdma/refusal.hpp"

namespace zerohop::rdma {
namespace {

void modify(const QueuePair& queue_pair, ibv_qp_attr& attributes, int mask) {
  const int result = queue_pair.device().verbs().modify_qp(queue_pair.handle(), &attributes, mask);
  if (result != 0) throw_refusal(queue_pair, attributes, mask, result);
}

}  // namespace

Agreement agree(const QueuePairAddress& local, const QueuePairAddress& remote) noexcept {
  return {.mtu = std::min(local.mtu, remote.mtu),
          .reads_in = std::min(local.reads_in, remote.reads_out),
          .reads_out = std::min(local.reads_out, remote.reads_in)};
}

ibv_ah_attr path_to(const Device& device, const QueuePairOptions& options,
                    const QueuePairAddress& remote) {
  const ibv_port_attr port = device.port_attributes();
  ibv_ah_attr path{};
  path.dlid = remote.lid;
  path.sl = options.service_level;
  path.port_num = device.port();
  const auto& own = device.gid();
  path.is_global = port.link_layer == IBV_LINK_LAYER_ETHERNET || remote.lid == 0 ||
                   remote.gid.global.subnet_prefix != own.value.global.subnet_prefix ||
                   (port.flags & IBV_QPF_GRH_REQUIRED) != 0;
  if (path.is_global) {
    path.grh.dgid = remote.gid;
    path.grh.sgid_index = static_cast<std::uint8_t>(own.index);
    path.grh.hop_limit = options.hop_limit;
    path.grh.traffic_class = options.traffic_class;
  }
  return path;
}

void QueuePair::to_init(std::optional<int> remote_access) {
  const int atomics = device().has_atomics() ? int{IBV_ACCESS_REMOTE_ATOMIC} : 0;
  const int all = IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ | atomics;
  ibv_qp_attr attributes{};
  attributes.qp_state = IBV_QPS_INIT;
  attributes.pkey_index = options_.pkey_index;
  attributes.port_num = device().port();
  attributes.qp_access_flags = static_cast<unsigned>(remote_access.value_or(all));
  const int of_port = device().is_iwarp() ? 0 : IBV_QP_PKEY_INDEX | IBV_QP_PORT;
  modify(*this, attributes, IBV_QP_STATE | of_port | IBV_QP_ACCESS_FLAGS);
}

void QueuePair::to_ready_to_receive(const QueuePairAddress& remote,
                                    const std::optional<Path>& path) {
  const Agreement agreed = agree(address(), remote);
  ibv_qp_attr attributes{};
  attributes.qp_state = IBV_QPS_RTR;
  attributes.path_mtu = static_cast<ibv_mtu>(path ? std::min(agreed.mtu, path->mtu) : agreed.mtu);
  attributes.dest_qp_num = remote.number;
  attributes.rq_psn = remote.psn;
  attributes.max_dest_rd_atomic = agreed.reads_in;
  attributes.min_rnr_timer = options_.rnr_timer;
  attributes.ah_attr = path ? path->attributes : path_to(device(), options_, remote);
  modify(*this, attributes,
         IBV_QP_STATE | IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN | IBV_QP_RQ_PSN |
             IBV_QP_MAX_DEST_RD_ATOMIC | IBV_QP_MIN_RNR_TIMER);
}

void QueuePair::to_ready_to_send(const QueuePairAddress& remote) {
  ibv_qp_attr attributes{};
  attributes.qp_state = IBV_QPS_RTS;
  attributes.sq_psn = psn_;
  attributes.timeout = options_.timeout;
  attributes.retry_cnt = options_.retries;
  attributes.rnr_retry = options_.rnr_retries;
  attributes.max_rd_atomic = agree(address(), remote).reads_out;
  modify(*this, attributes,
         IBV_QP_STATE | IBV_QP_SQ_PSN | IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY |
             IBV_QP_MAX_QP_RD_ATOMIC);
}

void QueuePair::to_error() {
  ibv_qp_attr attributes{};
  attributes.qp_state = IBV_QPS_ERR;
  modify(*this, attributes, IBV_QP_STATE);
}

void QueuePair::to_reset() {
  ibv_qp_attr attributes{};
  attributes.qp_state = IBV_QPS_RESET;
  modify(*this, attributes, IBV_QP_STATE);
}

void QueuePair::connect(const QueuePairAddress& remote, const std::optional<Path>& path) {
  if (device().is_iwarp()) {
    throw VerbsError("queue pairs of " + device().name() +
                         ", an iWARP device, are connected by rdma_cm, as an Endpoint does: use "
                         "zh.Endpoint, or a queue pair of another device",
                     EOPNOTSUPP);
  }
  to_init();
  to_ready_to_receive(remote, path);
  to_ready_to_send(remote);
}

}  // namespace zerohop::rdma
