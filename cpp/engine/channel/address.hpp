// The address of an Endpoint: where its control channel listens, and the secret that opens it.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "engine/endpoint_id.hpp"

namespace zerohop::engine {

using Secret = std::array<std::byte, 32>;

std::string to_hex(std::span<const std::byte> bytes);

// Opaque bytes to the user; any channel may carry them, as long as nobody else reads them: whoever
// holds them may connect.
struct Address {
  EndpointId id{};
  Secret secret{};
  std::string host;  // IPv4 or IPv6 literal of the control listener
  std::uint16_t port = 0;
  std::string device;  // of the endpoint, as a user would name it: "soft0", "mlx5_0"
  std::string name;

  ~Address();  // wipes the secret
  bool operator==(const Address&) const = default;

  std::vector<std::byte> to_bytes() const;

  // Throws ProtocolError that says whether the bytes are truncated, damaged, of another version, or
  // not an address at all.
  static Address from_bytes(std::span<const std::byte> bytes);
};

}  // namespace zerohop::engine
