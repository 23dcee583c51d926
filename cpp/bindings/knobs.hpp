// The numbers that tune an Endpoint's device and queue pairs, by name.
#pragma once

#include <map>
#include <string>

#include "engine/core/endpoint.hpp"

namespace zerohop::bindings {

// Ranges are the caller's to check. Throws std::invalid_argument for a name that is none.
void set_knobs(engine::EndpointOptions& options, const std::map<std::string, int>& knobs);

}  // namespace zerohop::bindings
