// Memory that only who made it knows how to give away, as that of a GPU: it reaches another process
// in exported chunks, each for a chunk of it.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "base/unique_fd.hpp"

namespace zerohop::shm {

struct ExportedChunk {
  static constexpr std::size_t kMaxHandle = 128;  // bytes

  std::uint64_t begin = 0;  // of the chunk, in addresses of its owner
  std::uint64_t end = 0;
  std::vector<std::byte> handle;  // what the other process needs to know, at most kMaxHandle
  UniqueFd descriptor;            // ... and may need beside it
};

class Packer {
 public:
  virtual ~Packer() = default;
  // The chunk around `address`. Throws Error with the reason where it cannot be given away.
  virtual ExportedChunk pack(std::uint64_t address) const = 0;
};

}  // namespace zerohop::shm
