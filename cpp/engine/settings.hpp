// The knobs of a queue pair as they are in effect, to be shown with a route.
#pragma once

#include <cstdint>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include "rdma/queue_pair.hpp"

namespace zerohop::engine {

// In the order in which they are shown; named as the keywords of an Endpoint are.
using Settings = std::vector<std::pair<std::string, std::variant<std::int64_t, std::string>>>;

// remote: the other end, or null while there is none.
Settings settings_of(const rdma::QueuePair& queue_pair, const rdma::QueuePairAddress* remote);

}  // namespace zerohop::engine
