#include "rdma/verbs_text.hpp"

#include <cstddef>
#include <cstdio>
#include <iterator>

namespace zerohop::rdma {
namespace {

template <std::size_t count>
const char* at(const char* const (&names)[count], unsigned long index) noexcept {
  return index < count ? names[index] : "UNKNOWN";
}

}  // namespace

std::string hex(std::uint64_t value) {
  char text[2 + 16 + 1];
  std::snprintf(text, sizeof text, "0x%llx", static_cast<unsigned long long>(value));
  return text;
}

unsigned mtu_bytes(unsigned mtu) noexcept {
  return mtu >= IBV_MTU_256 && mtu <= IBV_MTU_4096 ? 128u << mtu : 0;
}

const char* port_state_name(ibv_port_state state) noexcept {
  static constexpr const char* kNames[] = {"NOP",   "DOWN",   "INIT",
                                           "ARMED", "ACTIVE", "ACTIVE_DEFER"};
  static_assert(std::size(kNames) == IBV_PORT_ACTIVE_DEFER + 1);
  return at(kNames, state);
}

const char* link_layer_name(std::uint8_t link_layer) noexcept {
  static constexpr const char* kNames[] = {"unspecified", "InfiniBand", "Ethernet"};
  static_assert(std::size(kNames) == IBV_LINK_LAYER_ETHERNET + 1);
  return at(kNames, link_layer);
}

const char* atomic_cap_name(ibv_atomic_cap cap) noexcept {
  static constexpr const char* kNames[] = {"NONE", "HCA", "GLOB"};
  static_assert(std::size(kNames) == IBV_ATOMIC_GLOB + 1);
  return at(kNames, cap);
}

const char* opcode_name(ibv_wc_opcode opcode) noexcept {
  switch (opcode) {
    case IBV_WC_SEND: return "SEND";
    case IBV_WC_RDMA_WRITE: return "RDMA_WRITE";
    case IBV_WC_RDMA_READ: return "RDMA_READ";
    case IBV_WC_COMP_SWAP: return "COMP_SWAP";
    case IBV_WC_FETCH_ADD: return "FETCH_ADD";
    case IBV_WC_RECV: return "RECV";
    case IBV_WC_RECV_RDMA_WITH_IMM: return "RECV_RDMA_WITH_IMM";
    default: return "UNKNOWN";
  }
}

}  // namespace zerohop::rdma
