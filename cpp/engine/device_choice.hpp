// Which verbs device an Endpoint uses, and the names of all that could be.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "rdma/device.hpp"

namespace zerohop::engine {

// Adapters that libibverbs knows, then the software HCA on every interface.
std::vector<std::string> device_names();

// Opens the named device; an empty name means the first adapter with an active port, else "soft0".
// Throws VerbsError that lists the names which exist, or says why libibverbs is not there.
std::shared_ptr<rdma::Device> open_device(const std::string& name, std::uint8_t port = 1,
                                          int gid_index = 0);

}  // namespace zerohop::engine
