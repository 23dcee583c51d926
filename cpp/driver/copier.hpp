// How bytes get to and from memory that the CPU cannot touch (a GPU's): by copies through pinned
// memory of the host. An interface, so that the software HCA, which needs it, knows nothing of
// CUDA, which fills it.
#pragma once

#include <cstddef>
#include <cstdint>

namespace zerohop::driver {

// What one thread copies through: chunks of pinned host memory, and copies that run in the order in
// which they are started. Functions return 0, or the error number of the device's driver
// (CUresult).
class CopyLane {
 public:
  static constexpr unsigned kChunks = 4;

  std::byte* chunk(unsigned i) const noexcept { return chunks_ + i * chunk_nbytes_; }
  std::size_t chunk_nbytes() const noexcept { return chunk_nbytes_; }

  // Start a copy. `host` lies in a chunk, and neither side may be touched before a wait() for it.
  virtual int start_to_host(std::byte* host, std::uint64_t device, std::size_t nbytes) noexcept = 0;
  virtual int start_to_device(std::uint64_t device, const std::byte* host,
                              std::size_t nbytes) noexcept = 0;
  // Remembers under the number of a chunk what has been started so far ...
  virtual int mark(unsigned i) noexcept = 0;
  // ... and waits until that is done: visible to the CPU, and to work that the device begins later.
  // Bounded: a device that does not answer is an error.
  virtual int wait(unsigned i) noexcept = 0;

 protected:
  ~CopyLane() = default;
  std::byte* chunks_ = nullptr;  // kChunks * chunk_nbytes_
  std::size_t chunk_nbytes_ = 0;
};

class Copier {
 public:
  virtual ~Copier() = default;

  // A lane for the calling thread alone, until the same thread gives it back, with nothing running.
  // Waits while all are in use. 0, or the error number of the device's driver.
  virtual int take(CopyLane*& lane) noexcept = 0;
  virtual void give_back(CopyLane& lane) noexcept = 0;
};

}  // namespace zerohop::driver
