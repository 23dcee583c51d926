// Wakes a thread that watches descriptors: readable from ring() until silence().
#pragma once

#include "base/unique_fd.hpp"

namespace zerohop {

class Bell {
 public:
  Bell();  // throws Error when the process is out of descriptors

  int fd() const noexcept { return fd_.get(); }
  void ring() noexcept;     // several before silence() count as one
  void silence() noexcept;  // never blocks

 private:
  UniqueFd fd_;
};

}  // namespace zerohop
