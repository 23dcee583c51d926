#include "engine/core/endpoint_settings.hpp"

#include <chrono>

namespace zerohop::engine {
namespace {

// Numbered as in the Python keyword.
std::int64_t number_of(RelaxedOrdering ordering) noexcept {
  switch (ordering) {
    case RelaxedOrdering::off: return 0;
    case RelaxedOrdering::on: return 1;
    case RelaxedOrdering::automatic: break;
  }
  return 2;
}

}  // namespace

Settings settings_of(const EndpointOptions& options, const std::string& host) {
  const std::chrono::duration<double> spin = options.spin;
  return {{"roce_version", std::int64_t{options.port.roce == rdma::GidKind::roce_v1 ? 1 : 2}},
          {"rdma_cm", std::int64_t{options.rdma_cm ? 1 : 0}},
          {"registration", std::string(demand_name(options.gpu.registration))},
          {"relaxed_ordering", number_of(options.gpu.relaxed_ordering)},
          {"staging_chunk", static_cast<std::int64_t>(options.gpu.staging_chunk)},
          {"registration_cache", static_cast<std::int64_t>(options.gpu.cache.nbytes >> 20)},
          {"registration_cache_entries", static_cast<std::int64_t>(options.gpu.cache.entries)},
          {"max_peers", static_cast<std::int64_t>(options.max_peers)},
          {"p2p", std::int64_t{options.p2p ? 1 : 0}},
          {"stripe_bytes", static_cast<std::int64_t>(options.stripe_bytes)},
          {"timeout", options.timeout},
          {"spin", spin.count()},
          {"host", host}};
}

}  // namespace zerohop::engine
