// From scatter/gather lists to iovecs: the bytes of this process for a part of a message.
#pragma once

#include <infiniband/verbs.h>
#include <sys/uio.h>

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>

#include "softhca/bounce.hpp"
#include "softhca/memory_table.hpp"

namespace zerohop::softhca {

// The iovec of one system call, filled from the front.
class IoVector {
 public:
  static constexpr std::size_t kMost = 64;

  // For memory that the CPU can access.
  IoVector() = default;
  // For any memory; what the CPU cannot access goes through `bounce`.
  IoVector(Bounce& bounce, Bounce::Direction direction) : bounce_(&bounce) {
    bounce.begin(direction);
  }

  bool full() const noexcept { return count_ == kMost || ended_; }
  std::size_t count() const noexcept { return count_; }
  std::size_t nbytes() const noexcept { return nbytes_; }
  iovec* data() noexcept { return parts_.data(); }
  void add(const void* address, std::size_t nbytes) noexcept {
    parts_[count_++] = {const_cast<void*>(address), nbytes};
    nbytes_ += nbytes;
  }
  // Whether the CPU can access everything added.
  bool on_host() const noexcept { return !bounced_; }
  // Returns how many bytes were added: fewer if the vector is full.
  std::size_t add(const Place& place, std::size_t nbytes) noexcept;

 private:
  std::array<iovec, kMost> parts_;  // the first count_ are set
  std::size_t count_ = 0;
  std::size_t nbytes_ = 0;
  Bounce* bounce_ = nullptr;
  bool bounced_ = false;
  bool ended_ = false;  // closed, although there are parts left
};

// Adds the bytes [offset, offset + nbytes) of the list to `out`, pinned in `pins`. Returns how many
// were added: fewer than nbytes if `out` is full; -1 if an element is not allowed.
std::int64_t add_elements(MemoryTable& memory, const ibv_pd* domain,
                          std::span<const ibv_sge> elements, std::uint64_t offset,
                          std::uint64_t nbytes, int access, Pins& pins, IoVector& out) noexcept;

// Whether every element of the list, up to `nbytes` bytes, is registered memory with that access.
enum class Allowed { no, yes, copied };  // copied: yes, but the CPU cannot access all of it
Allowed are_allowed(MemoryTable& memory, const ibv_pd* domain, std::span<const ibv_sge> elements,
                    std::uint64_t offset, std::uint64_t nbytes, int access) noexcept;

// One non-blocking system call each; for a single part the plain one, which is cheaper. Results and
// errno as for send(2) and recv(2). Sends the parts [first, end).
ssize_t send_parts(int socket, IoVector& parts, std::size_t first, std::size_t end) noexcept;
ssize_t receive_parts(int socket, IoVector& parts) noexcept;

// Copies between a flat buffer and the parts of `vector`, which cover at least nbytes.
void copy_out(IoVector& vector, const std::byte* from, std::size_t nbytes) noexcept;
void copy_in(IoVector& vector, std::byte* to, std::size_t nbytes) noexcept;

}  // namespace zerohop::softhca
