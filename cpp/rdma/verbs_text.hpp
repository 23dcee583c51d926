// Verbs values as text: names of constants without their prefix, numbers, addresses.
#pragma once

#include <infiniband/verbs.h>

#include <cstdint>
#include <string>

namespace zerohop::rdma {

std::string hex(std::uint64_t value);       // "0x1f"
unsigned mtu_bytes(unsigned mtu) noexcept;  // ibv_mtu -> 256 ... 4096; 0 if invalid

const char* port_state_name(ibv_port_state state) noexcept;
const char* link_layer_name(std::uint8_t link_layer) noexcept;
const char* atomic_cap_name(ibv_atomic_cap cap) noexcept;
const char* opcode_name(ibv_wc_opcode opcode) noexcept;

}  // namespace zerohop::rdma
