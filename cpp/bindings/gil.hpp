#pragma once

#include <pybind11/pybind11.h>
#include <unistd.h>

#include <utility>

// Letting go of Python's lock and taking it back. While the interpreter ends, CPython before 3.14
// ends every other thread that asks for the lock by pthread_exit(), which unwinds its stack: met by
// a destructor or a noexcept function that is std::terminate(). Here such a thread sleeps until the
// process is gone, as it does in CPython 3.14 (PEP 788; github.com/python/cpython/issues/87135).

namespace zerohop::bindings {

namespace py = pybind11;

// take: takes the lock, and throws nothing but what pthread_exit() unwinds with.
template <typename Take>
auto take_gil(Take&& take) noexcept {
  try {
    return std::forward<Take>(take)();
  } catch (...) {
    for (;;) ::pause();
  }
}

// Without the lock for a scope.
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

// With the lock for a scope, on a thread that may or may not have it.
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
