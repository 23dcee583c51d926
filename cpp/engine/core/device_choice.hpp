// Which verbs devices an Endpoint uses, and the names of all that could be.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "driver/verbs.hpp"
#include "rdma/device.hpp"

namespace zerohop::engine {

// Adapters that libibverbs knows, then the software HCA on every interface.
std::vector<std::string> device_names();

// Opens the named device whatever state it is in, as long as it has a GID. Throws VerbsError that
// lists the names which exist, or says why libibverbs (`library`) is not there.
std::shared_ptr<rdma::Device> open_device(
    const std::string& name, const rdma::PortWish& wish = {},
    const driver::VerbsLibrary& library = driver::libibverbs());

struct DeviceChoice {
  std::shared_ptr<rdma::Device> device;
  std::string reason;  // half a sentence: "it was asked for"
};

// Adapters to be tried before others where none is named, best first.
struct DevicePreference {
  std::vector<std::string> names;
  std::string reason;  // why one of them was chosen, as of DeviceChoice
};

// The device called `name`; for an empty name the first adapter that can serve, else "soft0", and
// why no adapter can. Throws VerbsError for a named device that cannot serve.
DeviceChoice choose_device(const std::string& name, const rdma::PortWish& wish,
                           const DevicePreference& preference = {},
                           const driver::VerbsLibrary& library = driver::libibverbs());

// The devices of an Endpoint, one a rail: those named, with commas in between, or for an empty text
// the one that choose_device() finds. Throws as that does, and std::invalid_argument for a device
// named twice or too many.
std::vector<DeviceChoice> choose_devices(const std::string& names, const rdma::PortWish& wish,
                                         const DevicePreference& preference = {});

}  // namespace zerohop::engine
