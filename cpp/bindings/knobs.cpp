#include "bindings/knobs.hpp"

#include <algorithm>
#include <array>
#include <bit>
#include <stdexcept>

namespace zerohop::bindings {
namespace {

using engine::EndpointOptions;

struct Knob {
  const char* name;
  void (*set)(EndpointOptions& options, int value);
};

// ibv_mtu counts from 1 for 256 bytes, in powers of two.
std::uint8_t to_mtu(int nbytes) {
  return static_cast<std::uint8_t>(std::countr_zero(static_cast<unsigned>(nbytes)) - 7);
}

template <auto member>
void set_queue_pair(EndpointOptions& options, int value) {
  auto& field = options.queue_pair.*member;
  field = static_cast<std::remove_reference_t<decltype(field)>>(value);
}

constexpr std::array kKnobs{
    Knob{"port_num", [](auto& o, int v) { o.port.port = static_cast<std::uint8_t>(v); }},
    Knob{"gid_index", [](auto& o, int v) { o.port.gid_index = v; }},
    Knob{"roce_version",
         [](auto& o, int v) {
           o.port.roce = v == 1 ? rdma::GidKind::roce_v1 : rdma::GidKind::roce_v2;
         }},
    Knob{"rdma_cm", [](auto& o, int v) { o.rdma_cm = v != 0; }},
    Knob{"mtu", [](auto& o, int v) { o.queue_pair.mtu = to_mtu(v); }},
    Knob{"pkey_index", set_queue_pair<&rdma::QueuePairOptions::pkey_index>},
    Knob{"service_level", set_queue_pair<&rdma::QueuePairOptions::service_level>},
    Knob{"traffic_class", set_queue_pair<&rdma::QueuePairOptions::traffic_class>},
    Knob{"hop_limit", set_queue_pair<&rdma::QueuePairOptions::hop_limit>},
    Knob{"ack_timeout", set_queue_pair<&rdma::QueuePairOptions::timeout>},
    Knob{"retry_count", set_queue_pair<&rdma::QueuePairOptions::retries>},
    Knob{"rnr_retry", set_queue_pair<&rdma::QueuePairOptions::rnr_retries>},
    Knob{"min_rnr_timer", set_queue_pair<&rdma::QueuePairOptions::rnr_timer>},
    Knob{"rd_atomic", set_queue_pair<&rdma::QueuePairOptions::rd_atomic>},
    Knob{"inline_bytes", set_queue_pair<&rdma::QueuePairOptions::inline_bytes>},
    Knob{"send_depth", set_queue_pair<&rdma::QueuePairOptions::send_depth>},
    Knob{"message_slots", [](auto& o, int v) { o.messages.slots = static_cast<std::uint32_t>(v); }},
    Knob{"message_bytes",
         [](auto& o, int v) { o.messages.nbytes = static_cast<std::uint32_t>(v); }},
    Knob{"relaxed_ordering",
         [](auto& o, int v) {
           using engine::RelaxedOrdering;
           constexpr std::array kWords{RelaxedOrdering::off, RelaxedOrdering::on,
                                       RelaxedOrdering::automatic};
           o.gpu.relaxed_ordering = kWords.at(static_cast<std::size_t>(v));
         }},
    Knob{"staging_chunk",
         [](auto& o, int v) { o.gpu.staging_chunk = static_cast<std::size_t>(v); }},
    Knob{"max_peers", [](auto& o, int v) { o.max_peers = static_cast<std::size_t>(v); }},
    Knob{"integrity", [](auto& o, int v) { o.integrity = v != 0; }},
    Knob{"p2p", [](auto& o, int v) { o.p2p = v != 0; }},
    Knob{"stripe_bytes", [](auto& o, int v) { o.stripe_bytes = static_cast<std::uint64_t>(v); }},
    Knob{"registration_cache",
         [](auto& o, int v) { o.gpu.cache.nbytes = static_cast<std::uint64_t>(v) << 20; }},
    Knob{"registration_cache_entries",
         [](auto& o, int v) { o.gpu.cache.entries = static_cast<std::size_t>(v); }},
};

}  // namespace

void set_knobs(EndpointOptions& options, const std::map<std::string, int>& knobs) {
  for (const auto& [name, value] : knobs) {
    const auto known =
        std::ranges::find_if(kKnobs, [&](const Knob& knob) { return knob.name == name; });
    if (known == kKnobs.end()) throw std::invalid_argument("there is no knob '" + name + "'");
    known->set(options, value);
  }
}

}  // namespace zerohop::bindings
