#include "engine/device_choice.hpp"

#include <cerrno>

#include "base/error.hpp"
#include "driver/verbs.hpp"
#include "softhca/softhca.hpp"

namespace zerohop::engine {
namespace {

constexpr const char* kSoftware = "soft0";

std::vector<std::string> adapter_names() {
  const auto& library = driver::libibverbs();
  return library.verbs ? rdma::Device::names(*library.verbs) : std::vector<std::string>{};
}

bool is_usable(rdma::Device& device) {
  // iWARP has neither write with immediate nor atomics.
  return device.context()->device->transport_type == IBV_TRANSPORT_IB &&
         device.port_attributes().state == IBV_PORT_ACTIVE;
}

std::shared_ptr<rdma::Device> first_usable_adapter() {
  for (const std::string& name : adapter_names()) {
    try {
      auto device = rdma::Device::open(driver::libibverbs().verbs, name);
      if (is_usable(*device)) return device;
    } catch (const VerbsError&) {
      continue;  // listed but not to be opened (a container without /dev/infiniband, say)
    }
  }
  return nullptr;
}

}  // namespace

std::vector<std::string> device_names() {
  std::vector<std::string> names = adapter_names();
  for (const std::string& name : rdma::Device::names(*softhca::verbs())) names.push_back(name);
  return names;
}

std::shared_ptr<rdma::Device> open_device(const std::string& name, std::uint8_t port,
                                          int gid_index) {
  if (name.empty()) {
    if (auto adapter = first_usable_adapter()) return adapter;
    return open_device(kSoftware, port, gid_index);
  }
  if (name.starts_with(kSoftware)) {
    return rdma::Device::open(softhca::verbs(), softhca::canonical_name(name), port, gid_index);
  }
  const auto& library = driver::libibverbs();
  if (library.verbs) return rdma::Device::open(library.verbs, name, port, gid_index);
  throw VerbsError("cannot open device '" + name + "': " + library.reason +
                       "; or use the software HCA, device='soft0'",
                   ENODEV);
}

}  // namespace zerohop::engine
