// Small conversions that several topics share.
#pragma once

#include <pybind11/pybind11.h>

#include <cstddef>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "base/deadline.hpp"
#include "base/layout.hpp"

namespace zerohop::bindings {

namespace py = pybind11;

inline Deadline within(double timeout) { return Deadline::after(Deadline::Seconds(timeout)); }

inline std::span<const std::byte> as_bytes(const py::bytes& bytes) {
  const std::string_view view(bytes);
  return std::as_bytes(std::span(view));
}

inline py::bytes to_bytes(std::span<const std::byte> bytes) {
  return {reinterpret_cast<const char*>(bytes.data()), bytes.size()};
}

inline py::tuple to_tuple(std::span<const std::int64_t> values) {
  py::tuple tuple(values.size());
  for (std::size_t i = 0; i < values.size(); ++i) tuple[i] = values[i];
  return tuple;
}

// len() as in numpy: the first dimension; a scalar has none.
inline std::int64_t layout_length(const Layout& layout) {
  if (layout.ndim() == 0) throw py::type_error("len() of an array without dimensions");
  return layout.shape[0];
}

// shape, dtype, strides, ... of a class whose layout `layout_of` returns.
template <typename Type, typename LayoutOf>
void bind_layout_properties(Type& type, LayoutOf layout_of) {
  using Class = typename Type::type;
  type.def_property_readonly(
          "shape",
          [layout_of](const Class& self) { return to_tuple(layout_of(self).shape.span()); },
          "Elements per dimension.")
      .def_property_readonly(
          "strides",
          [layout_of](const Class& self) { return to_tuple(layout_of(self).strides.span()); },
          "Bytes from one element to the next, per dimension.")
      .def_property_readonly(
          "dtype", [layout_of](const Class& self) { return layout_of(self).dtype.name(); },
          "Its name: ``\"float32\"``.")
      .def_property_readonly(
          "ndim", [layout_of](const Class& self) { return layout_of(self).ndim(); },
          "How many dimensions.")
      .def_property_readonly(
          "itemsize", [layout_of](const Class& self) { return layout_of(self).itemsize(); },
          "Bytes of an element.")
      .def_property_readonly(
          "nbytes", [layout_of](const Class& self) { return layout_of(self).nbytes(); },
          "Bytes of all elements, without gaps.");
}

}  // namespace zerohop::bindings
