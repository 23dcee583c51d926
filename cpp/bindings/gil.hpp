#pragma once

#include <pybind11/pybind11.h>
#include <unistd.h>

#include <utility>

// Releasing and retaking Python's lock. During interpreter shutdown, CPython before 3.14 ends every
// other thread that requests the lock with pthread_exit(), which unwinds its stack: in a destructor
// or a noexcept function that is std::terminate(). Here such a thread sleeps until the process is
// gone, as in CPython 3.14 (PEP 788; github.com/python/cpython/issues/87135).

namespace zerohop::bindings {

namespace py = pybind11;

// take: takes the lock, and throws nothing except the exception that pthread_exit() unwinds with.
template <typename Take>
auto take_gil(Take&& take) noexcept {
  try {
    return std::forward<Take>(take)();
  } catch (...) {
    for (;;) ::pause();
  }
}

// Releases the lock for a scope.
class GilReleased {
 public:
  GilReleased() : thread_(PyEval_SaveThread()) {}
  ~GilReleased() {
    take_gil([this] { PyEval_RestoreThread(thread_); });
  }
  GilReleased(const GilReleased&) = delete;
  GilReleased& operator=(const GilReleased&) = delete;

 private:
  PyThreadState* thread_;
};

// Holds the lock for a scope, on a thread that may or may not have it already.
class GilTaken {
 public:
  GilTaken() : state_(take_gil([] { return PyGILState_Ensure(); })) {}
  ~GilTaken() { PyGILState_Release(state_); }
  GilTaken(const GilTaken&) = delete;
  GilTaken& operator=(const GilTaken&) = delete;

 private:
  PyGILState_STATE state_;
};

}  // namespace zerohop::bindings
