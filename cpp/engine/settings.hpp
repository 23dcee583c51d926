// The knobs of an Endpoint and of a queue pair as they are in effect, to be shown with a route.
#pragma once

#include <cstdint>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include "rdma/queue_pair.hpp"

namespace zerohop::engine {

// In the order in which they are shown; named as the keywords of an Endpoint are.
using Setting = std::variant<std::int64_t, double, std::string>;
using Settings = std::vector<std::pair<std::string, Setting>>;

// What the device was asked when the queue pair was made: nothing is asked again.
struct LocalEnd {
  rdma::QueuePairAddress address;
  std::uint8_t link_layer;  // IBV_LINK_LAYER_*
};

// remote: the other end, or null while there is none.
Settings settings_of(const rdma::QueuePair& queue_pair, const LocalEnd& local,
                     const rdma::QueuePairAddress* remote);

}  // namespace zerohop::engine
