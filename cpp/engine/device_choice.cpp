#include "engine/device_choice.hpp"

#include <cerrno>

#include "base/error.hpp"
#include "softhca/softhca.hpp"

namespace zerohop::engine {
namespace {

constexpr const char* kSoftware = "soft0";

std::vector<std::string> adapter_names(const driver::VerbsLibrary& library) {
  return library.verbs ? rdma::Device::names(*library.verbs) : std::vector<std::string>{};
}

DeviceChoice first_that_serves(const rdma::PortWish& wish, const driver::VerbsLibrary& library) {
  std::string obstacles;
  for (const std::string& name : adapter_names(library)) {
    std::string cause;
    try {
      auto device = rdma::Device::open(library.verbs, name, wish);
      if (device->obstacle().empty()) {
        return {std::move(device), "it is the first adapter that can serve"};
      }
      cause = name + " " + device->obstacle();
    } catch (const VerbsError& error) {
      cause = error.what();  // listed but not to be opened (a container without /dev/infiniband)
    }
    obstacles += (obstacles.empty() ? "" : "; ") + cause;
  }
  auto device = open_device(kSoftware, wish, library);
  if (obstacles.empty()) obstacles = "this machine has none";
  return {std::move(device), "no RDMA adapter can serve (" + obstacles + ")"};
}

}  // namespace

std::vector<std::string> device_names() {
  std::vector<std::string> names = adapter_names(driver::libibverbs());
  for (const std::string& name : rdma::Device::names(*softhca::verbs())) names.push_back(name);
  return names;
}

std::shared_ptr<rdma::Device> open_device(const std::string& name, const rdma::PortWish& wish,
                                          const driver::VerbsLibrary& library) {
  if (name.starts_with(kSoftware)) {
    return rdma::Device::open(softhca::verbs(), softhca::canonical_name(name), wish);
  }
  if (library.verbs) return rdma::Device::open(library.verbs, name, wish);
  throw VerbsError("cannot open device '" + name + "': " + library.reason +
                       "; or use the software HCA, device='soft0'",
                   ENODEV);
}

DeviceChoice choose_device(const std::string& name, const rdma::PortWish& wish,
                           const driver::VerbsLibrary& library) {
  if (name.empty()) return first_that_serves(wish, library);
  auto device = open_device(name, wish, library);
  if (!device->obstacle().empty()) {
    throw VerbsError("device '" + name + "' cannot be used: it " + device->obstacle(), ENODEV);
  }
  return {std::move(device), "it was asked for"};
}

}  // namespace zerohop::engine
