#include "engine/core/device_choice.hpp"

#include <algorithm>
#include <cerrno>
#include <ranges>
#include <stdexcept>
#include <string_view>

#include "base/error.hpp"
#include "engine/rail.hpp"
#include "softhca/softhca.hpp"

namespace zerohop::engine {
namespace {

std::vector<std::string> adapter_names(const driver::VerbsLibrary& library) {
  return library.verbs ? rdma::Device::names(*library.verbs) : std::vector<std::string>{};
}

DeviceChoice first_that_serves(const rdma::PortWish& wish, const DevicePreference& preference,
                               const driver::VerbsLibrary& library) {
  const auto preferred = [&](const std::string& name) {
    return std::ranges::find(preference.names, name) - preference.names.begin();
  };
  const auto is_preferred = [&](const std::string& name) {
    return preferred(name) < std::ssize(preference.names);
  };
  std::vector<std::string> names = adapter_names(library);
  std::ranges::stable_sort(names, {}, preferred);
  std::string obstacles;
  std::shared_ptr<rdma::Device> iwarp;  // it lacks atomics: if no other one serves
  for (const std::string& name : names) {
    std::string cause;
    try {
      auto device = rdma::Device::open(library.verbs, name, wish);
      if (device->obstacle().empty() && device->is_iwarp() && !is_preferred(name)) {
        if (!iwarp) iwarp = std::move(device);
        continue;
      }
      if (device->obstacle().empty()) {
        return {std::move(device),
                is_preferred(name) ? preference.reason : "it is the first adapter that can serve"};
      }
      cause = name + " " + device->obstacle();
    } catch (const VerbsError& error) {
      cause = error.what();  // listed but cannot be opened (a container without /dev/infiniband)
    }
    obstacles += (obstacles.empty() ? "" : "; ") + cause;
  }
  if (iwarp) return {std::move(iwarp), "it is the first adapter that can serve (iWARP)"};
  auto device = open_device(std::string(softhca::kLoopbackDevice), wish, library);
  if (obstacles.empty()) obstacles = "this machine has none";
  return {std::move(device), "no RDMA adapter can serve (" + obstacles + ")"};
}

// "rxe0, rxe1" -> "rxe0", "rxe1"
std::vector<std::string> split_names(const std::string& text) {
  std::vector<std::string> names;
  for (const auto part : std::views::split(text, ',')) {
    const std::string_view name(part.begin(), part.end());
    const auto begin = name.find_first_not_of(' ');
    if (begin == std::string_view::npos) {
      throw std::invalid_argument("'" + text + "' has a comma with no device beside it");
    }
    names.emplace_back(name.substr(begin, name.find_last_not_of(' ') + 1 - begin));
  }
  if (names.size() > kMaxRails) {
    throw std::invalid_argument(std::to_string(names.size()) + " devices are too many: name " +
                                std::to_string(kMaxRails) + " at most");
  }
  return names;
}

}  // namespace

std::vector<std::string> device_names() {
  std::vector<std::string> names = adapter_names(driver::libibverbs());
  for (const std::string& name : rdma::Device::names(*softhca::verbs())) names.push_back(name);
  return names;
}

std::shared_ptr<rdma::Device> open_device(const std::string& name, const rdma::PortWish& wish,
                                          const driver::VerbsLibrary& library) {
  if (name.starts_with(softhca::kLoopbackDevice)) {
    return rdma::Device::open(softhca::verbs(), softhca::canonical_name(name), wish);
  }
  if (library.verbs) return rdma::Device::open(library.verbs, name, wish);
  throw VerbsError("cannot open device '" + name + "': " + library.reason +
                       "; or use the software HCA, device='soft0'",
                   ENODEV);
}

DeviceChoice choose_device(const std::string& name, const rdma::PortWish& wish,
                           const DevicePreference& preference,
                           const driver::VerbsLibrary& library) {
  if (name.empty()) return first_that_serves(wish, preference, library);
  auto device = open_device(name, wish, library);
  if (!device->obstacle().empty()) {
    throw VerbsError("device '" + name + "' cannot be used: it " + device->obstacle(), ENODEV);
  }
  return {std::move(device), "it was asked for"};
}

std::vector<DeviceChoice> choose_devices(const std::string& names, const rdma::PortWish& wish,
                                         const DevicePreference& preference) {
  std::vector<DeviceChoice> chosen;
  if (names.empty()) chosen.push_back(choose_device("", wish, preference));
  for (const std::string& name : split_names(names)) {
    chosen.push_back(choose_device(name, wish));
    const std::string& opened = chosen.back().device->name();
    const auto same = [&](const DeviceChoice& other) { return other.device->name() == opened; };
    if (std::ranges::count_if(chosen, same) > 1) {
      throw std::invalid_argument("device '" + opened +
                                  "' is named twice: a rail needs a device of its own");
    }
    // Their routes and speeds would differ, and the slower one would set the pace.
    const std::string& first = chosen.front().device->name();
    if (opened.starts_with(softhca::kLoopbackDevice) !=
        first.starts_with(softhca::kLoopbackDevice)) {
      throw std::invalid_argument("'" + opened + "' and '" + first +
                                  "' cannot be rails of one Endpoint: name adapters only, or only "
                                  "devices of the software HCA");
    }
  }
  return chosen;
}

}  // namespace zerohop::engine
