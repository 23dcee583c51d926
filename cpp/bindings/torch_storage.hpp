// PyTorch tensors, whose storage the program could resize while it is registered.
#pragma once

#include <pybind11/pybind11.h>

namespace zerohop::bindings {

// Makes PyTorch refuse that from now on (zerohop.torch_storage). Does nothing for anything but CPU
// tensors. Call before the array is imported: PyTorch may let other threads run meanwhile.
void hold_storage(pybind11::handle array);

}  // namespace zerohop::bindings
