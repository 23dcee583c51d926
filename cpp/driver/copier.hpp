// Copies to and from memory that the CPU cannot access (a GPU's), through pinned host memory. An
// interface, so that the software HCA, which uses it, does not depend on CUDA, which implements it.
#pragma once

#include <cstddef>
#include <cstdint>

namespace zerohop::driver {

// What one thread copies through: chunks of pinned host memory, and copies that run in the order in
// which they were started. Functions return 0 or the device driver's error code (CUresult).
class CopyLane {
 public:
  static constexpr unsigned kChunks = 4;

  std::byte* chunk(unsigned i) const noexcept { return chunks_ + i * chunk_nbytes_; }
  std::size_t chunk_nbytes() const noexcept { return chunk_nbytes_; }

  // Start a copy. `host` lies in a chunk; touch neither side before a wait() for it.
  virtual int start_to_host(std::byte* host, std::uint64_t device, std::size_t nbytes) noexcept = 0;
  virtual int start_to_device(std::uint64_t device, const std::byte* host,
                              std::size_t nbytes) noexcept = 0;
  // Marks chunk i with all copies started so far.
  virtual int mark(unsigned i) noexcept = 0;
  // Waits for the copies up to mark(i). They are then visible to the CPU and to later device work.
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

  // A lane for the calling thread alone, until the same thread returns it with no copy running.
  // Blocks while all are in use. Returns 0 or the device driver's error code.
  virtual int take(CopyLane*& lane) noexcept = 0;
  virtual void give_back(CopyLane& lane) noexcept = 0;
};

}  // namespace zerohop::driver
