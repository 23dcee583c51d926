#include "engine/settings.hpp"

#include "rdma/verbs_text.hpp"

namespace zerohop::engine {

Settings settings_of(const rdma::QueuePair& queue_pair, const LocalEnd& local,
                     const rdma::QueuePairAddress* remote) {
  const rdma::Device& device = queue_pair.device();
  const rdma::QueuePairOptions& options = queue_pair.options();
  const rdma::Agreement agreed = agree(local.address, remote != nullptr ? *remote : local.address);
  Settings all;
  const auto add = [&all](const char* name, std::int64_t value) { all.emplace_back(name, value); };
  all.emplace_back("device", device.name());
  all.emplace_back("link_layer", rdma::link_layer_name(local.link_layer));
  add("port_num", device.port());
  add("gid_index", device.gid().index);
  all.emplace_back("gid", rdma::gid_text(device.gid().value));
  all.emplace_back("gid_kind", rdma::gid_kind_name(device.gid().kind));
  if (remote != nullptr) all.emplace_back("remote_gid", rdma::gid_text(remote->gid));
  add("mtu", rdma::mtu_bytes(agreed.mtu));
  add("pkey_index", options.pkey_index);
  add("service_level", options.service_level);
  add("traffic_class", options.traffic_class);
  add("hop_limit", options.hop_limit);
  add("ack_timeout", options.timeout);
  add("retry_count", options.retries);
  add("rnr_retry", options.rnr_retries);
  add("min_rnr_timer", options.rnr_timer);
  add("rd_atomic_out", agreed.reads_out);
  add("rd_atomic_in", agreed.reads_in);
  add("inline_bytes", options.inline_bytes);
  add("send_sge", options.send_sge);
  return all;
}

}  // namespace zerohop::engine
