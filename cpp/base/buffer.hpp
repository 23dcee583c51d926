// Host memory that zerohop allocates itself: shared-memory pages behind a file descriptor, so that
// another process on this host can be given them.
#pragma once

#include <cstddef>
#include <cstdint>

#include "base/unique_fd.hpp"

namespace zerohop {

class Buffer {
 public:
  // What a process that is given the descriptor may do, however it opens it anew.
  enum class Others { may_write, only_read };

  // Page-aligned, zeroed, and backed by real pages at once: a lack of memory is a RegistrationError
  // here instead of a SIGBUS at the first touch, and so is a kernel that cannot keep the others to
  // reading. nbytes 0 maps nothing and data() is null.
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
