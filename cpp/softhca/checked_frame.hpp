// Frames with a number and a checksum (wire::kChecked), sent by queue pairs with faults.
//
// TCP loses nothing by itself. A queue pair with faults drops, damages and repeats such frames, and
// resends lost ones. The receiver treats each like an adapter treats a packet: it drops a frame
// that fails the check, or that it has already taken, before anything of it takes effect.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "softhca/wire.hpp"

namespace zerohop::softhca {

// Position of the Check: behind the prefix, as the first part of the control section.
inline constexpr std::size_t kCheckAt = sizeof(wire::Prefix);
inline constexpr std::size_t kCheckEnd = kCheckAt + sizeof(wire::Check);

// Fills in the Check of an otherwise complete frame.
void seal_frame(std::span<std::byte> frame, std::uint32_t number) noexcept;

// Size of a checked frame from its first bytes: kCheckEnd if there are too few to tell, 0 if no
// correct peer sends it.
std::size_t checked_nbytes(std::span<const std::byte> begin) noexcept;

enum class Finding : std::uint8_t {
  next,      // take it
  damaged,   // the checksum does not match: treat as not received
  repeated,  // already taken
  gap,       // an earlier frame is missing, although TCP loses nothing
};
// For a whole frame. `expected`: the number of the next one. Clears the checksum in the frame.
Finding inspect_frame(std::span<std::byte> frame, std::uint32_t expected) noexcept;

// The same frame without its number and checksum: a part of `frame`, which is modified.
std::span<std::byte> uncheck_frame(std::span<std::byte> frame) noexcept;

}  // namespace zerohop::softhca
