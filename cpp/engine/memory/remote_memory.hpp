// Memory of another Endpoint and the right to use it: a plain value that crosses the wire.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/index.hpp"
#include "base/layout.hpp"
#include "engine/endpoint_id.hpp"
#include "engine/rail.hpp"

namespace zerohop::engine {

// The holder's rights. Atomics need a readable and writable element, on a device that has them.
enum RemoteAccess : std::uint8_t { kRemoteRead = 1, kRemoteWrite = 2, kRemoteNoAtomics = 4 };

struct RemoteMemory {
  EndpointId endpoint{};         // its owner
  Layout layout;                 // owner's addresses
  RailKeys rkeys{};              // 0: not reachable through that rail
  std::uint64_t local_key = 0;   // for processes of the owner's host; 0: only through a device
  std::uint64_t staged_key = 0;  // of GPU memory that no rail reaches: the owner copies
  std::uint8_t access = 0;       // RemoteAccess bits
  std::uint64_t begin = 0;       // the registered range [begin, end) that every key covers
  std::uint64_t end = 0;
  std::string device;  // its location: "cpu", "cuda:0"

  bool reachable() const noexcept { return rkeys != RailKeys{}; }  // through a device
  bool on_host() const noexcept { return std::string_view(device) == "cpu"; }
  bool staged() const noexcept { return staged_key != 0; }

  RemoteMemory slice(std::span<const Index> indices) const;
  RemoteMemory range(std::uint64_t address, std::uint64_t nbytes) const;  // those bytes of it

  std::vector<std::byte> to_bytes() const;
  // Throws ProtocolError: truncated, damaged, or a layout that leaves its registered range.
  static RemoteMemory from_bytes(std::span<const std::byte> bytes);

  friend bool operator==(const RemoteMemory&, const RemoteMemory&) = default;
};

}  // namespace zerohop::engine
