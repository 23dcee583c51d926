// Frames with a number and a checksum (wire::kChecked), as queue pairs send them that have faults.
//
// TCP loses nothing by itself; a queue pair with faults drops, damages and repeats such frames, and
// sends again what it lost. The receiver treats each as an adapter treats a packet: one that fails
// the check is dropped before anything of it counts, and so is one that came before.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "softhca/wire.hpp"

namespace zerohop::softhca {

// Where the Check stands: behind the prefix, as the first part of the control section.
inline constexpr std::size_t kCheckAt = sizeof(wire::Prefix);
inline constexpr std::size_t kCheckEnd = kCheckAt + sizeof(wire::Check);

// Fills in the Check of a frame that is complete but for that.
void seal_frame(std::span<std::byte> frame, std::uint32_t number) noexcept;

// Bytes of a checked frame of which the first ones are given: kCheckEnd while there are too few to
// say, and 0 when no correct peer sends it.
std::size_t checked_nbytes(std::span<const std::byte> begin) noexcept;

enum class Finding : std::uint8_t {
  next,      // take it
  damaged,   // the checksum does not match: as if it had not come
  repeated,  // it has been taken before
  gap,       // one before it is missing, and TCP loses nothing
};
// Of a whole one. `expected`: the number of the next. Clears the checksum in it.
Finding inspect_frame(std::span<std::byte> frame, std::uint32_t expected) noexcept;

// The same frame without its number and checksum: a part of `frame`, which is changed.
std::span<std::byte> uncheck_frame(std::span<std::byte> frame) noexcept;

}  // namespace zerohop::softhca
