// Host memory that zerohop allocates: shared-memory pages behind a file descriptor, which can be
// passed to another process of this host.
#pragma once

#include <cstddef>
#include <cstdint>

#include "base/unique_fd.hpp"

namespace zerohop {

class Buffer {
 public:
  // What a process that receives the descriptor may do, even if it reopens it.
  enum class Others { may_write, only_read };

  // Page-aligned, zeroed, and backed by real pages at once. A lack of memory is a RegistrationError
  // here rather than a SIGBUS at the first touch. A kernel that cannot enforce only_read is one,
  // too. With nbytes 0 nothing is mapped and data() is null.
  explicit Buffer(std::uint64_t nbytes, Others others = Others::may_write);
  Buffer(Buffer&& other) noexcept;
  Buffer& operator=(Buffer&& other) noexcept;
  ~Buffer();

  std::byte* data() const noexcept { return data_; }
  std::uint64_t address() const noexcept { return reinterpret_cast<std::uintptr_t>(data_); }
  std::uint64_t nbytes() const noexcept { return nbytes_; }
  int fd() const noexcept { return fd_.get(); }  // memfd; -1 when nbytes is 0

 private:
  UniqueFd fd_;
  std::byte* data_ = nullptr;
  std::uint64_t nbytes_ = 0;
};

}  // namespace zerohop
