// The buffer protocol (PEP 3118), consumer side: NumPy, bytes, bytearray, memoryview, array, mmap.
#pragma once

#include <optional>

#include "bindings/array_import.hpp"

namespace zerohop::bindings {

// False when the object has no buffer, or has one that __dlpack__ can stand in for. Throws
// py::type_error for elements that are no supported dtype.
bool import_buffer(py::handle object, ImportedArray& array);

// Of the elements of a view with its format; nothing: it is no supported one.
std::optional<DType> dtype_of(const Py_buffer& view);

}  // namespace zerohop::bindings
