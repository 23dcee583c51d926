#include "bindings/page_indices.hpp"

#include <cstddef>
#include <cstring>
#include <numeric>
#include <string>

#include "bindings/array_import.hpp"
#include "bindings/demands.hpp"

namespace zerohop::bindings {
namespace {

using Indices = std::vector<std::int64_t>;

constexpr const char* kWanted =
    "an array of int32, int64, uint32 or uint64 along one axis, a sequence of ints, or None";

std::string place(const char* what, std::size_t k) {
  return std::string(what) + "[" + std::to_string(k) + "]";
}

template <typename T>
Indices copy_as(const Layout& layout) {
  Indices indices(static_cast<std::size_t>(layout.shape[0]));
  std::uint64_t address = layout.address;
  for (std::int64_t& index : indices) {
    T value;
    std::memcpy(&value, reinterpret_cast<const void*>(address), sizeof value);
    index = static_cast<std::int64_t>(value);
    address += static_cast<std::uint64_t>(layout.strides[0]);
  }
  return indices;
}

Indices copy_unsigned(const Layout& layout, const char* what) {
  Indices indices = copy_as<std::uint64_t>(layout);
  for (std::size_t k = 0; k < indices.size(); ++k) {
    if (indices[k] >= 0) continue;
    throw py::index_error(place(what, k) + " is " +
                          std::to_string(static_cast<std::uint64_t>(indices[k])) +
                          ", larger than any array");
  }
  return indices;
}

Indices copy_array(const ImportedArray& array, const char* what) {
  const Layout& layout = array.layout;
  if (array.device != "cpu") {
    throw py::type_error(std::string(what) + " is on " + array.device +
                         ", but must be in host memory: pass " + what + ".cpu()");
  }
  if (layout.ndim() != 1) {
    throw py::value_error(std::string(what) + " must have one axis, not the shape " +
                          shape_string(layout.shape.span()));
  }
  const auto& [code, bits, lanes] = layout.dtype;
  if (code == kDTypeInt && bits == 64) {
    if (!layout.is_contiguous()) return copy_as<std::int64_t>(layout);
    const auto* const first = reinterpret_cast<const std::int64_t*>(layout.address);
    if (layout.address % alignof(std::int64_t) == 0) return {first, first + layout.shape[0]};
    return copy_as<std::int64_t>(layout);
  }
  if (code == kDTypeInt && bits == 32) return copy_as<std::int32_t>(layout);
  if (code == kDTypeUInt && bits == 32) return copy_as<std::uint32_t>(layout);
  if (code == kDTypeUInt && bits == 64) return copy_unsigned(layout, what);
  throw py::type_error(std::string(what) + " must be " + kWanted + ", not of " +
                       layout.dtype.name());
}

std::int64_t to_index(py::handle item, const char* what, std::size_t k) {
  if (PyBool_Check(item.ptr()) || !PyIndex_Check(item.ptr())) {
    throw py::type_error(place(what, k) + " must be an int, not " + a_type_name(item));
  }
  const Py_ssize_t index = PyNumber_AsSsize_t(item.ptr(), nullptr);  // clipped: no such page exists
  if (index == -1 && PyErr_Occurred() != nullptr) throw py::error_already_set();
  return index;
}

Indices copy_sequence(py::handle object, const char* what) {
  // Copied into a tuple: an item's __index__ may change the sequence.
  const auto items = py::reinterpret_steal<py::object>(PySequence_Tuple(object.ptr()));
  if (!items) throw py::error_already_set();
  Indices indices(static_cast<std::size_t>(PyTuple_GET_SIZE(items.ptr())));
  for (std::size_t k = 0; k < indices.size(); ++k) {
    indices[k] = to_index(PyTuple_GET_ITEM(items.ptr(), static_cast<Py_ssize_t>(k)), what, k);
  }
  return indices;
}

bool is_array(py::handle object) {
  return PyObject_CheckBuffer(object.ptr()) || py::hasattr(object, "__dlpack__");
}

}  // namespace

Indices demand_pages(py::handle object, const char* what, std::int64_t size) {
  if (object.is_none()) {
    Indices all(static_cast<std::size_t>(size));
    std::iota(all.begin(), all.end(), std::int64_t{0});
    return all;
  }
  if (is_array(object)) return copy_array(import_array(object), what);
  if (PySequence_Check(object.ptr()) && !PyUnicode_Check(object.ptr())) {
    return copy_sequence(object, what);
  }
  throw py::type_error(std::string(what) + " must be " + kWanted + ", not " + a_type_name(object));
}

}  // namespace zerohop::bindings
