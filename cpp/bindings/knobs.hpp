// The numbers that tune an Endpoint's device and queue pairs, by name.
#pragma once

#include <map>
#include <string>

#include "engine/core/endpoint.hpp"

namespace zerohop::bindings {

// The caller checks ranges. Throws std::invalid_argument for an unknown name.
void set_knobs(engine::EndpointOptions& options, const std::map<std::string, int>& knobs);

}  // namespace zerohop::bindings
