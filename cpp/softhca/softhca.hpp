// The software HCA: a verbs device in user space that moves bytes over TCP.
#pragma once

#include <memory>
#include <string>
#include <string_view>

#include "driver/verbs.hpp"

namespace zerohop::softhca {

// The device on loopback; the others are "soft0@<interface>".
inline constexpr std::string_view kLoopbackDevice = "soft0";

// The verbs table, always complete. get_device_list names "soft0" (loopback) first, then one
// "soft0@<interface>" for every other interface that is up and has an IPv4 address.
std::shared_ptr<const driver::Verbs> verbs();

// "soft0", "soft0@eth0", "soft0@10.0.0.5" or "soft0@127.0.0.2" -> that device's name in
// get_device_list. Throws VerbsError (ENODEV) that names the existing interfaces.
std::string canonical_name(std::string_view name);

}  // namespace zerohop::softhca
