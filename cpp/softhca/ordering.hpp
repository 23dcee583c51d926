// Describes the ordering of a TCP connection to ThreadSanitizer: memory accesses before a send
// happen before those after the receive. If both sides are in one process, the tool sees only two
// unrelated sockets and would report every one-sided transfer as a race. Empty in other builds.
#pragma once

#ifdef __SANITIZE_THREAD__
#include <sanitizer/tsan_interface.h>

// Exported by the sanitizer's run time; no header of GCC 12 declares them.
extern "C" void AnnotateIgnoreReadsBegin(const char* file, int line);
extern "C" void AnnotateIgnoreReadsEnd(const char* file, int line);
#endif

namespace zerohop::softhca::ordering {

#ifdef __SANITIZE_THREAD__
inline char connections;
// Lives around a sending system call. The kernel reads the bytes before the peer receives them, but
// the tool records the read when the call returns, possibly after the peer's answer.
struct Sending {
  Sending() noexcept {
    __tsan_release(&connections);
    AnnotateIgnoreReadsBegin(__FILE__, __LINE__);
  }
  ~Sending() { AnnotateIgnoreReadsEnd(__FILE__, __LINE__); }
};
inline void after_receive() noexcept { __tsan_acquire(&connections); }
#else
struct Sending {};
inline void after_receive() noexcept {}
#endif

}  // namespace zerohop::softhca::ordering
