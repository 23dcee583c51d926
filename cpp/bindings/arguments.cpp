#include "bindings/arguments.hpp"

#include <string>
#include <string_view>

namespace zerohop::bindings {
namespace {

std::int64_t parse_size(py::handle size) {
  const auto value = PyNumber_AsSsize_t(size.ptr(), PyExc_ValueError);
  if (value == -1 && PyErr_Occurred()) throw py::error_already_set();
  if (value < 0)
    throw py::value_error("a shape has no negative dimension such as " + std::to_string(value));
  return value;
}

// numpy.dtype has a name, scalar types such as numpy.float16 have __name__, and torch dtypes print
// as "torch.float16".
std::string dtype_name(py::handle dtype) {
  const void* type = dtype.ptr();
  // As numpy.dtype(int) on 64-bit Linux.
  if (type == &PyLong_Type) return "int64";
  if (type == &PyFloat_Type) return "float64";
  if (type == &PyComplex_Type) return "complex128";
  if (py::isinstance<py::str>(dtype)) return dtype.cast<std::string>();
  for (const char* attribute : {"name", "__name__"}) {
    const py::object name = py::getattr(dtype, attribute, py::none());
    if (py::isinstance<py::str>(name)) return name.cast<std::string>();
  }
  auto text = py::str(dtype).cast<std::string>();
  constexpr std::string_view kTorch = "torch.";
  return text.starts_with(kTorch) ? text.substr(kTorch.size()) : text;
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
  // A bool has __index__ too, but means a mask to numpy.
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
  if (!py::isinstance<py::sequence>(shape) || py::isinstance<py::str>(shape)) {
    throw py::type_error(std::string("a shape is an integer or a tuple of integers, not ") +
                         Py_TYPE(shape.ptr())->tp_name);
  }
  for (py::handle size : py::reinterpret_borrow<py::sequence>(shape)) {
    dims.push_back(parse_size(size));
  }
  return dims;
}

DType parse_dtype(py::handle dtype) { return DType::parse(dtype_name(dtype)); }

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
