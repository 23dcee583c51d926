// Memory that only its allocator can export, such as GPU memory: it reaches another process as
// exported chunks.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "base/unique_fd.hpp"

namespace zerohop::shm {

struct ExportedChunk {
  static constexpr std::size_t kMaxHandle = 128;  // bytes

  std::uint64_t begin = 0;  // of the chunk, in its owner's addresses
  std::uint64_t end = 0;
  std::vector<std::byte> handle;  // what the other process needs, at most kMaxHandle bytes
  UniqueFd descriptor;            // ... and may need besides
};

class Packer {
 public:
  virtual ~Packer() = default;
  // The chunk around `address`. Throws Error with the reason if it cannot be exported.
  virtual ExportedChunk pack(std::uint64_t address) const = 0;
};

}  // namespace zerohop::shm
