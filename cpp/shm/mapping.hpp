// A mapping of a memfd that another process of this host shared.
#pragma once

#include <cstddef>
#include <cstdint>

namespace zerohop::shm {

class Mapping {
 public:
  // Maps the first `nbytes` of the file, which must be sealed against shrinking: otherwise its
  // owner could turn a later access into SIGBUS. Throws Error.
  Mapping(int fd, std::uint64_t nbytes, bool writable);
  ~Mapping();
  Mapping(const Mapping&) = delete;
  Mapping& operator=(const Mapping&) = delete;

  std::byte* data() const noexcept { return data_; }
  std::uint64_t nbytes() const noexcept { return nbytes_; }

 private:
  std::byte* data_ = nullptr;
  std::uint64_t nbytes_;
};

}  // namespace zerohop::shm
