#include "rdma/port_choice.hpp"

#include <algorithm>
#include <cerrno>
#include <numeric>

#include "base/error.hpp"
#include "rdma/verbs_text.hpp"

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

std::string remedy(const PortWish& wish, bool ethernet) {
  if (!ethernet) return "; start a subnet manager";
  if (wish.roce == GidKind::roce_v1) return "; ask for roce_version=2, or name a gid_index";
  return "; give its network interface an IP address, or name a gid_index";
}

}  // namespace

std::vector<std::uint8_t> ports_to_try(std::size_t count, const PortWish& wish,
                                       const std::string& device) {
  if (count == 0) throw VerbsError(device + " has no port", EINVAL);
  if (wish.port > count) {
    throw VerbsError(device + " has no port " + std::to_string(wish.port) + ": ports are 1 to " +
                         std::to_string(count),
                     EINVAL);
  }
  if (wish.port != 0) return {wish.port};
  std::vector<std::uint8_t> ports(count);
  std::iota(ports.begin(), ports.end(), std::uint8_t{1});
  return ports;
}

std::string obstacle_of(ibv_transport_type transport, const ibv_port_attr& attributes,
                        std::uint8_t port) {
  if (transport != IBV_TRANSPORT_IB && transport != IBV_TRANSPORT_IWARP) {
    return "speaks neither InfiniBand, RoCE nor iWARP; use soft0@<its network interface>";
  }
  if (attributes.state == IBV_PORT_ACTIVE) return "";
  return "has port " + std::to_string(port) + " in state " + port_state_name(attributes.state) +
         (attributes.link_layer == IBV_LINK_LAYER_ETHERNET
              ? ": bring its network interface up"
              : ": connect the cable and start a subnet manager");
}

std::optional<Gid> find_gid(std::span<const Gid> gids, bool ethernet, const PortWish& wish) {
  const GidKind kind = ethernet ? wish.roce : GidKind::infiniband;
  const Gid* best = nullptr;
  for (const Gid& gid : gids) {
    if (gid.index > kMaxGidIndex) continue;
    if (wish.gid_index >= 0) {
      if (gid.index == wish.gid_index) return gid;
      continue;
    }
    if (gid.kind != kind && gid.kind != GidKind::iwarp && gid.kind != GidKind::unknown) continue;
    if (best == nullptr || reach_of(gid.value) > reach_of(best->value)) best = &gid;
  }
  return best != nullptr ? std::optional(*best) : std::nullopt;
}

std::string lack_of_gid(std::span<const Gid> gids, bool ethernet, const PortWish& wish) {
  const GidKind kind = ethernet ? wish.roce : GidKind::infiniband;
  std::string text = wish.gid_index >= 0
                         ? "has no GID at gid_index " + std::to_string(wish.gid_index)
                         : std::string("has no ") + gid_kind_name(kind) + " GID";
  text += ": " + list_of(gids);
  const auto beyond = [](const Gid& gid) { return gid.index > kMaxGidIndex; };
  if (std::ranges::any_of(gids, beyond) || wish.gid_index > kMaxGidIndex) {
    text += "; queue pairs can name entries 0 to " + std::to_string(kMaxGidIndex) + " only";
  }
  return wish.gid_index >= 0 ? text : text + remedy(wish, ethernet);
}

}  // namespace zerohop::rdma
