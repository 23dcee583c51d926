// Python arguments that describe arrays: shape, dtype and index expressions.
#pragma once

#include <pybind11/pybind11.h>

#include <vector>

#include "base/dims.hpp"
#include "base/dtype.hpp"
#include "base/index.hpp"

namespace zerohop::bindings {

namespace py = pybind11;

// A non-negative integer or a sequence of them. Throws py::type_error, py::value_error.
Dims parse_shape(py::handle shape);

// The arguments of reshape(): (2, 3), ((2, 3),) or ([2, 3],). Throws py::type_error.
Dims parse_new_shape(const py::args& sizes);

// "float16", "f2", float, numpy.float16, torch.float16, ml_dtypes.bfloat16, ... Throws
// py::type_error, py::value_error.
DType parse_dtype(py::handle dtype);

// The expression inside the brackets of m[...]. Throws py::index_error for anything but integers,
// slices, ... and None: the rest of numpy's indexing would have to copy.
std::vector<Index> parse_index(py::handle key);

}  // namespace zerohop::bindings
