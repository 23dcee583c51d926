// Puts with checked data: the notification that follows carries the checksum of the data.
#pragma once

#include "zerohop/crc32c.h"
#include "zerohop/team.cuh"

namespace zerohop::device {

// The CRC32C of bytes that this GPU reads; computed by the team, all of which gets it.
template <typename Team = Thread>
__device__ u32 crc32c(u64 address, u64 nbytes) {
  return ~Team::all_xor(crc::part(address, nbytes, Team::rank(), Team::size()));
}

}  // namespace zerohop::device
