#include "engine/device_choice.hpp"

#include <cerrno>

#include "base/error.hpp"
#include "driver/verbs.hpp"
#include "rdma/verbs_text.hpp"
#include "softhca/softhca.hpp"

namespace zerohop::engine {
namespace {

constexpr const char* kSoftware = "soft0";

std::vector<std::string> adapter_names() {
  const auto& library = driver::libibverbs();
  return library.verbs ? rdma::Device::names(*library.verbs) : std::vector<std::string>{};
}

// Why no Endpoint can use the device; empty if one can.
std::string obstacle(const rdma::Device& device) {
  const ibv_transport_type transport = device.context()->device->transport_type;
  if (transport == IBV_TRANSPORT_IWARP) {
    return "is an iWARP adapter: it has neither write with immediate nor atomics, and connects "
           "through rdma_cm only; use soft0@<its network interface>";
  }
  if (transport != IBV_TRANSPORT_IB) {
    return "speaks neither InfiniBand nor RoCE; use soft0@<its network interface>";
  }
  const ibv_port_attr port = device.port_attributes();
  if (port.state != IBV_PORT_ACTIVE) {
    return std::string("has port ") + std::to_string(device.port()) + " in state " +
           rdma::port_state_name(port.state) +
           (port.link_layer == IBV_LINK_LAYER_ETHERNET
                ? ": bring its network interface up"
                : ": connect the cable and start a subnet manager");
  }
  return "";
}

DeviceChoice first_that_serves(const rdma::PortWish& wish) {
  std::string obstacles;
  for (const std::string& name : adapter_names()) {
    std::string cause;
    try {
      auto device = rdma::Device::open(driver::libibverbs().verbs, name, wish);
      cause = obstacle(*device);
      if (cause.empty()) return {std::move(device), "it is the first adapter that can serve"};
      cause = name + " " + cause;
    } catch (const VerbsError& error) {
      cause = error.what();  // listed but not to be opened (a container without /dev/infiniband)
    }
    obstacles += (obstacles.empty() ? "" : "; ") + cause;
  }
  auto device = open_device(kSoftware, wish);
  if (obstacles.empty()) obstacles = "this machine has none";
  return {std::move(device), "no RDMA adapter can serve (" + obstacles + ")"};
}

}  // namespace

std::vector<std::string> device_names() {
  std::vector<std::string> names = adapter_names();
  for (const std::string& name : rdma::Device::names(*softhca::verbs())) names.push_back(name);
  return names;
}

std::shared_ptr<rdma::Device> open_device(const std::string& name, const rdma::PortWish& wish) {
  if (name.starts_with(kSoftware)) {
    return rdma::Device::open(softhca::verbs(), softhca::canonical_name(name), wish);
  }
  const auto& library = driver::libibverbs();
  if (library.verbs) return rdma::Device::open(library.verbs, name, wish);
  throw VerbsError("cannot open device '" + name + "': " + library.reason +
                       "; or use the software HCA, device='soft0'",
                   ENODEV);
}

DeviceChoice choose_device(const std::string& name, const rdma::PortWish& wish) {
  if (name.empty()) return first_that_serves(wish);
  auto device = open_device(name, wish);
  if (const std::string cause = obstacle(*device); !cause.empty()) {
    throw VerbsError("device '" + name + "' cannot be used: it " + cause, ENODEV);
  }
  return {std::move(device), "it was asked for"};
}

}  // namespace zerohop::engine
