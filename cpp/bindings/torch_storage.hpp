// Tensors of PyTorch, whose storage the program could resize while it is registered.
#pragma once

#include <pybind11/pybind11.h>

namespace zerohop::bindings {

// Has PyTorch refuse that from now on (zerohop.torch_storage). Of anything but tensors of the CPU
// it does nothing. To be called before the array is imported: PyTorch may let other threads run
// meanwhile.
void hold_storage(pybind11::handle array);

}  // namespace zerohop::bindings
