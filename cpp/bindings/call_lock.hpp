// What the calls of a World share across its threads.
#pragma once

#include <pybind11/pybind11.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <new>
#include <optional>

#include "base/deadline.hpp"
#include "bindings/handles.hpp"

namespace zerohop::bindings::collective {

namespace py = pybind11;

// Held by the thread whose call runs. Threads that wait for it do not hold the GIL.
class CallLock {
 public:
  CallLock() : lock_(PyThread_allocate_lock()) {
    if (lock_ == nullptr) throw std::bad_alloc();
  }
  ~CallLock() { PyThread_free_lock(lock_); }
  CallLock(const CallLock&) = delete;
  CallLock& operator=(const CallLock&) = delete;

  bool try_acquire() noexcept {
    if (PyThread_acquire_lock(lock_, NOWAIT_LOCK) != 1) return false;
    owner_ = PyThread_get_thread_ident();
    return true;
  }
  // False: the deadline passed first. Throws what a signal handler raises.
  bool acquire(const Deadline& deadline) {
    while (!try_acquire()) {
      if (Deadline::Clock::now() >= deadline.at()) return false;
      without_gil([&] {
        if (PyThread_acquire_lock_timed(lock_, kLook.count(), 0) == PY_LOCK_ACQUIRED) {
          PyThread_release_lock(lock_);
        }
      });
      if (PyErr_CheckSignals() != 0) throw py::error_already_set();
    }
    return true;
  }
  bool is_mine() const noexcept { return owner_ == PyThread_get_thread_ident(); }
  // Does nothing for a thread that does not hold it: after an interrupting signal the caller cannot
  // know.
  void release() noexcept {
    if (!is_mine()) return;
    owner_ = kNobody;
    PyThread_release_lock(lock_);
  }

 private:
  static constexpr std::chrono::microseconds kLook = std::chrono::milliseconds(100);
  static constexpr unsigned long kNobody = PYTHREAD_INVALID_THREAD_ID;

  PyThread_type_lock lock_;
  unsigned long owner_ = kNobody;  // accessed with the GIL held
};

// The lock, if it was free, for the scope.
class TryLock {
 public:
  explicit TryLock(CallLock& lock) noexcept : lock_(lock), mine_(lock.try_acquire()) {}
  ~TryLock() {
    if (mine_) lock_.release();
  }
  TryLock(const TryLock&) = delete;
  TryLock& operator=(const TryLock&) = delete;
  explicit operator bool() const noexcept { return mine_; }
  void keep() noexcept { mine_ = false; }  // the lock stays held

 private:
  CallLock& lock_;
  bool mine_;
};

// A timeout as passed by the program, `usual` for None. nullopt: Python validates.
inline std::optional<double> seconds_in(py::handle given, double usual) {
  if (given.is_none()) return usual;
  double seconds = 0;
  if (PyFloat_CheckExact(given.ptr()) != 0) {
    seconds = PyFloat_AS_DOUBLE(given.ptr());
  } else if (PyLong_CheckExact(given.ptr()) != 0) {
    seconds = PyLong_AsDouble(given.ptr());
    if (seconds == -1.0) PyErr_Clear();
  }
  if (!(seconds > 0) || !std::isfinite(seconds)) return std::nullopt;
  return seconds;
}

}  // namespace zerohop::bindings::collective
