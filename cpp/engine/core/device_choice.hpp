// Which verbs devices an Endpoint uses, and the names of all devices available.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "driver/verbs.hpp"
#include "rdma/device.hpp"

namespace zerohop::engine {

// The adapters of libibverbs, then the software HCA on every interface.
std::vector<std::string> device_names();

// Opens the named device in any state, as long as it has a GID. Throws VerbsError that lists the
// existing names, or says why libibverbs (`library`) is missing.
std::shared_ptr<rdma::Device> open_device(
    const std::string& name, const rdma::PortWish& wish = {},
    const driver::VerbsLibrary& library = driver::libibverbs());

struct DeviceChoice {
  std::shared_ptr<rdma::Device> device;
  std::string reason;  // half a sentence: "it was asked for"
};

// Adapters to try before others if no device is named, best first.
struct DevicePreference {
  std::vector<std::string> names;
  std::string reason;  // why one of them was chosen, as in DeviceChoice
};

// The device called `name`. For an empty name: the first adapter that can serve, else "soft0" with
// the reason why no adapter can. Throws VerbsError for a named device that cannot serve.
DeviceChoice choose_device(const std::string& name, const rdma::PortWish& wish,
                           const DevicePreference& preference = {},
                           const driver::VerbsLibrary& library = driver::libibverbs());

// The devices of an Endpoint, one per rail: those named, separated by commas; for an empty text the
// one that choose_device() finds. Throws as choose_device() does, and std::invalid_argument for a
// device named twice or too many devices.
std::vector<DeviceChoice> choose_devices(const std::string& names, const rdma::PortWish& wish,
                                         const DevicePreference& preference = {});

}  // namespace zerohop::engine
