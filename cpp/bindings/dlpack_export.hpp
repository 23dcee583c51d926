// __dlpack__ and __dlpack_device__ of the Python array API standard (2024.12), producer side.
#pragma once

#include <pybind11/pybind11.h>
#include <pybind11/typing.h>

#include <string>

#include "bindings/array_export.hpp"

namespace zerohop::bindings {

// The keyword arguments of __dlpack__, as passed by the consumer.
struct DLPackRequest {
  py::object stream = py::none();
  py::object max_version = py::none();
  py::object dl_device = py::none();
  py::object copy = py::none();
};

// A "dltensor_versioned" capsule when max_version >= (1, 0), else a "dltensor". Throws
// py::buffer_error for what cannot be shared: read-only without a version, strides that are not
// multiples of the item size, another device, copy=True.
py::capsule to_dlpack(const ExportedArray& array, const DLPackRequest& request);

using DeviceTuple = py::typing::Tuple<py::int_, py::int_>;

// (device type, device id), as __dlpack_device__ returns it.
DeviceTuple dlpack_device(const std::string& device);

}  // namespace zerohop::bindings
