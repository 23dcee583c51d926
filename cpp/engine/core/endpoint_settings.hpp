// The settings of an Endpoint that belong to no queue pair, shown with a route.
#pragma once

#include <string>

#include "engine/core/endpoint.hpp"
#include "engine/settings.hpp"

namespace zerohop::engine {

// host: the address on which the Endpoint listens.
Settings settings_of(const EndpointOptions& options, const std::string& host);

}  // namespace zerohop::engine
