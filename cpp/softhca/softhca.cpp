#include "softhca/softhca.hpp"

#include <arpa/inet.h>

#include <cerrno>
#include <cstring>

#include "base/error.hpp"
#include "softhca/async_events.hpp"
#include "softhca/completion_channel.hpp"
#include "softhca/completion_queue.hpp"
#include "softhca/context.hpp"
#include "softhca/device.hpp"
#include "softhca/memory_table.hpp"
#include "softhca/protection_domain.hpp"
#include "softhca/queue_pair.hpp"
#include "softhca/shared_receive_queue.hpp"

namespace zerohop::softhca {
namespace {

driver::Verbs make_table() {
  driver::Verbs table;
  table.provider = "softhca";
#define ZEROHOP_FILL(member, symbol, version) table.member = softhca::member;
  ZEROHOP_VERBS_REQUIRED(ZEROHOP_FILL)
  ZEROHOP_VERBS_OPTIONAL(ZEROHOP_FILL)
#undef ZEROHOP_FILL
  table.query_port = softhca::query_port;
  table.reg_mr = softhca::reg_mr;
  table.reg_copied_mr = softhca::reg_copied_mr;
  return table;
}

// Whether `text` names this device: in full, or by its interface or address after "soft0@".
bool is_name_of(const SoftDevice& device, std::string_view text) {
  if (text == device.name) return true;
  constexpr std::string_view kPrefix = "soft0@";
  if (!text.starts_with(kPrefix)) return false;
  char address[INET_ADDRSTRLEN];
  ::inet_ntop(AF_INET, &device.address, address, sizeof address);
  const std::string_view place = text.substr(kPrefix.size());
  return place == device.interface || place == address;
}

}  // namespace

std::shared_ptr<const driver::Verbs> verbs() {
  static const auto table = std::make_shared<const driver::Verbs>(make_table());
  return table;
}

std::string canonical_name(std::string_view name) {
  if (const SoftDevice* device = loopback_device(std::string(name))) return device->name;
  std::string existing;
  for (const SoftDevice* device : soft_devices()) {
    if (is_name_of(*device, name)) return device->name;
    existing += existing.empty() ? "" : ", ";
    existing += device->name;
  }
  throw VerbsError(
      "no soft device is called '" + std::string(name) +
          "': no such interface or IPv4 address exists, or it is not up; this host has " + existing,
      ENODEV);
}

}  // namespace zerohop::softhca
