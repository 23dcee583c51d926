// The address on which an Endpoint listens for control connections.
#pragma once

#include <string>

#include "rdma/device.hpp"

namespace zerohop::engine {

// `chosen` if not empty; otherwise the address of the device: loopback for "soft0", the interface
// of "soft0@<interface>", the IPv4 address in a RoCE GID; otherwise the first interface that is up
// and not loopback (InfiniBand has no IP address of its own). An IPv4 or IPv6 literal.
std::string control_host(const rdma::Device& device, const std::string& chosen);

}  // namespace zerohop::engine
