// DLPack, consumer side: the C exchange table of a type (DLPack 1.2 and newer) and __dlpack__.
#pragma once

#include "bindings/array_import.hpp"

namespace zerohop::bindings {

// False when the object's type has no table of a known version. The table costs a tenth of a
// __dlpack__ call. Throws py::buffer_error for tensors whose bytes are not their values.
bool import_exchange_table(py::handle object, ImportedArray& array);

// False when the object has no __dlpack__.
bool import_dlpack(py::handle object, ImportedArray& array);

}  // namespace zerohop::bindings
