#include "bindings/arguments.hpp"

#include <string>

namespace zerohop::bindings {
namespace {

[[noreturn]] void refuse_shape(py::handle shape) {
  throw py::type_error(std::string("a shape is an integer or a tuple of integers, not ") +
                       Py_TYPE(shape.ptr())->tp_name);
}

std::int64_t to_size(py::handle size) {
  const auto value = PyNumber_AsSsize_t(size.ptr(), PyExc_ValueError);
  if (value == -1 && PyErr_Occurred()) throw py::error_already_set();
  return value;
}

std::int64_t parse_size(py::handle size) {
  if (PyIndex_Check(size.ptr()) == 0) refuse_shape(size);
  const std::int64_t value = to_size(size);
  if (value < 0)
    throw py::value_error("a shape has no negative dimension such as " + std::to_string(value));
  return value;
}

[[noreturn]] void refuse_index(py::handle key) {
  throw py::index_error(
      std::string("only integers, slices, ... and None select a part without a copy, not ") +
      Py_TYPE(key.ptr())->tp_name);
}

Index parse_one_index(py::handle key) {
  if (PySlice_Check(key.ptr())) {
    Py_ssize_t start = 0, stop = 0, step = 0;
    if (PySlice_Unpack(key.ptr(), &start, &stop, &step) != 0) throw py::error_already_set();
    return Slice{start, stop, step};
  }
  if (key.ptr() == Py_Ellipsis) return EllipsisIndex{};
  if (key.is_none()) return NewAxis{};
  // A bool has __index__ too, but numpy reads it as a mask.
  if (PyBool_Check(key.ptr()) || !PyIndex_Check(key.ptr())) refuse_index(key);
  const auto value = PyNumber_AsSsize_t(key.ptr(), PyExc_IndexError);
  if (value == -1 && PyErr_Occurred()) {
    const py::error_already_set error;
    if (error.matches(PyExc_TypeError)) refuse_index(key);  // an array of several integers
    throw error;
  }
  return std::int64_t{value};
}

}  // namespace

Dims parse_shape(py::handle shape) {
  Dims dims;
  if (PyIndex_Check(shape.ptr())) {
    dims.push_back(parse_size(shape));
    return dims;
  }
  if (!py::isinstance<py::sequence>(shape) || py::isinstance<py::str>(shape)) refuse_shape(shape);
  for (py::handle size : py::reinterpret_borrow<py::sequence>(shape)) {
    dims.push_back(parse_size(size));
  }
  return dims;
}

DType parse_dtype(py::handle dtype) {
  const auto name = py::module_::import("zerohop.arrays").attr("dtype_name")(dtype);
  return DType::parse(name.cast<std::string>());
}

Dims parse_new_shape(const py::args& sizes) {
  const bool packed = sizes.size() == 1 && PyIndex_Check(sizes[0].ptr()) == 0;
  const py::object items = packed ? py::object(sizes[0]) : py::object(sizes);
  if (!py::isinstance<py::tuple>(items) && !py::isinstance<py::list>(items)) refuse_shape(items);
  Dims dims;
  for (const py::handle size : items) {
    if (PyIndex_Check(size.ptr()) == 0) refuse_shape(size);
    dims.push_back(to_size(size));
  }
  return dims;
}

std::vector<Index> parse_index(py::handle key) {
  if (!PyTuple_Check(key.ptr())) return {parse_one_index(key)};
  std::vector<Index> indices;
  indices.reserve(static_cast<std::size_t>(PyTuple_GET_SIZE(key.ptr())));
  for (py::handle item : py::reinterpret_borrow<py::tuple>(key)) {
    indices.push_back(parse_one_index(item));
  }
  return indices;
}

}  // namespace zerohop::bindings
