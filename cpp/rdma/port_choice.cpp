#include "rdma/port_choice.hpp"

#include <cerrno>

#include "base/error.hpp"

namespace zerohop::rdma {
namespace {

enum Reach { kLink, kHost, kRouted, kRoutedIpv4 };

Reach reach_of(const ibv_gid& gid) {
  const std::uint8_t* raw = gid.raw;
  if (is_ipv4_mapped(gid)) {
    if (raw[12] == 169 && raw[13] == 254) return kLink;
    return raw[12] == 127 ? kHost : kRoutedIpv4;
  }
  return raw[0] == 0xfe && (raw[1] & 0xc0) == 0x80 ? kLink : kRouted;
}

std::string list_of(std::span<const Gid> gids) {
  if (gids.empty()) return "it has none";
  std::string text = "it has";
  for (const Gid& gid : gids) {
    text += (&gid == gids.data() ? " " : ", ") + std::to_string(gid.index) + ": " +
            gid_text(gid.value) + " (" + gid_kind_name(gid.kind) + ")";
  }
  return text;
}

Gid find_index(std::span<const Gid> gids, int index, const std::string& port) {
  for (const Gid& gid : gids) {
    if (gid.index == index) return gid;
  }
  throw VerbsError(
      port + " has no GID at gid_index " + std::to_string(index) + ": " + list_of(gids), ENODATA);
}

std::string remedy(const PortWish& wish, bool ethernet) {
  if (!ethernet) return "; start a subnet manager";
  if (wish.roce == GidKind::roce_v1) return "; ask for roce_version=2, or name a gid_index";
  return "; give its network interface an IP address, or name a gid_index";
}

}  // namespace

std::uint8_t choose_port(std::span<const ibv_port_attr> ports, const PortWish& wish,
                         const std::string& device) {
  if (wish.port > ports.size()) {
    throw VerbsError(device + " has no port " + std::to_string(wish.port) + ": ports are 1 to " +
                         std::to_string(ports.size()),
                     EINVAL);
  }
  if (wish.port != 0) return wish.port;
  for (std::size_t i = 0; i < ports.size(); ++i) {
    if (ports[i].state == IBV_PORT_ACTIVE) return static_cast<std::uint8_t>(i + 1);
  }
  return 1;
}

Gid choose_gid(std::span<const Gid> gids, bool ethernet, const PortWish& wish,
               const std::string& port) {
  if (wish.gid_index >= 0) return find_index(gids, wish.gid_index, port);
  const GidKind kind = ethernet ? wish.roce : GidKind::infiniband;
  const Gid* best = nullptr;
  for (const Gid& gid : gids) {
    if (gid.kind != kind && gid.kind != GidKind::unknown) continue;
    if (best == nullptr || reach_of(gid.value) > reach_of(best->value)) best = &gid;
  }
  if (best != nullptr) return *best;
  throw VerbsError(
      port + " has no " + gid_kind_name(kind) + " GID: " + list_of(gids) + remedy(wish, ethernet),
      ENODATA);
}

}  // namespace zerohop::rdma
