// Keeps objects of Python or a DLPack producer alive for C++ threads that must never take the GIL.
//
// An Owner may lose its last reference on any thread. If that thread holds the GIL the release
// happens at once; otherwise it goes to a list (lock-free, no allocation) that the interpreter's
// main thread and the next binding call drain. Once the interpreter has begun to shut down nothing
// is released: the memory goes with the process.
#pragma once

#include <pybind11/pybind11.h>

#include <memory>

namespace zerohop::bindings {

namespace py = pybind11;

using Owner = std::shared_ptr<void>;

// One thing to release while the GIL is held: derive, and release in the destructor.
class Held {
 public:
  virtual ~Held() = default;
  Held* next_released = nullptr;  // link of the release list
};

Owner make_owner(std::unique_ptr<Held> held);

// A new reference to `object`.
Owner own_object(py::handle object);

// Releases wait meanwhile: for a call that keeps the GIL and takes locks of the engine, under which
// Python code must not run.
class ReleaseLater {
 public:
  ReleaseLater() noexcept;
  ~ReleaseLater();
  ReleaseLater(const ReleaseLater&) = delete;
  ReleaseLater& operator=(const ReleaseLater&) = delete;
};

// Releases what other threads have queued. The GIL must be held. Cheap when there is nothing.
void drain_released() noexcept;

}  // namespace zerohop::bindings
