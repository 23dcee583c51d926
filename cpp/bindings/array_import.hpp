// The one place where a Python array becomes a Layout, without a copy: the DLPack C exchange table,
// the buffer protocol or __dlpack__.
#pragma once

#include <pybind11/pybind11.h>

#include <string>

#include "base/layout.hpp"
#include "bindings/owner.hpp"

namespace zerohop::bindings {

struct ImportedArray {
  Layout layout;  // validated
  bool writable = false;
  const char* why_read_only = "";  // completes "the array is read-only: ..."; static storage
  std::string device = "cpu";      // PyTorch's name for it
  Owner owner;                     // keeps the bytes alive and in place
};

// Throws py::type_error for objects that are not arrays or whose dtype is unsupported, and
// py::buffer_error (or the producer's exception) when the producer refuses. The GIL must be held.
ImportedArray import_array(py::handle object);

}  // namespace zerohop::bindings
