// The descriptors that a child made by fork(2) must not keep: while any process holds a socket
// open, its peer does not learn that the owner died. Every descriptor of the software HCA is
// tracked from its creation to its end, and the child closes them before any other code runs in it.
#pragma once

#include "base/unique_fd.hpp"

namespace zerohop::softhca::inherited {

void track(int fd) noexcept;
void untrack(int fd) noexcept;

// Forgets and closes.
inline void close(UniqueFd& fd) noexcept {
  if (fd) untrack(fd.get());
  fd.reset();
}

}  // namespace zerohop::softhca::inherited
