// The buffer protocol (PEP 3118), consumer side: NumPy, bytes, bytearray, memoryview, array, mmap.
#pragma once

#include <optional>

#include "bindings/array_import.hpp"

namespace zerohop::bindings {

// False when the object has no buffer, or one for which __dlpack__ can substitute. Throws
// py::type_error for elements of an unsupported dtype.
bool import_buffer(py::handle object, ImportedArray& array);

// The dtype of a view with a format; nothing: not supported.
std::optional<DType> dtype_of(const Py_buffer& view);

}  // namespace zerohop::bindings
