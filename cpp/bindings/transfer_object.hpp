#pragma once

#include "bindings/demands.hpp"
#include "bindings/handles.hpp"

namespace zerohop::bindings {

// Transfer.wait().
py::object wait_transfer(const TransferHandle& handle, Timeout timeout);

// Enables new_transfer().
void make_transfer_objects_fast(py::handle type);

// Like py::cast(), but without the table that maps equal values to the same object: a Transfer is
// returned only once, when it is created.
PyObject* new_transfer(TransferHandle&& transfer);

}  // namespace zerohop::bindings
