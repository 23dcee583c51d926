#pragma once

#include "bindings/demands.hpp"
#include "bindings/handles.hpp"

namespace zerohop::bindings {

// Transfer.wait().
py::object wait_transfer(const TransferHandle& handle, Timeout timeout);

// From now on new_transfer() may be called.
void make_transfer_objects_fast(py::handle type);

// As py::cast(), which enters each object into a table, so that the same value gives the same
// object: a Transfer is handed out once, when it is made.
PyObject* new_transfer(TransferHandle&& transfer);

}  // namespace zerohop::bindings
