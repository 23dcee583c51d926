#include "bindings/buffer_import.hpp"

#include <bit>
#include <optional>
#include <span>
#include <string_view>

namespace zerohop::bindings {
namespace {

static_assert(sizeof(Py_ssize_t) == sizeof(std::int64_t), "strides are copied as they are");
static_assert(std::endian::native == std::endian::little, "big-endian formats are refused below");

// The view must not move after it is filled: its shape may point into itself (PyBuffer_FillInfo).
class HeldBuffer final : public Held {
 public:
  ~HeldBuffer() override { PyBuffer_Release(&view); }  // no-op for an unfilled view
  Py_buffer view{};
};

// Kind and width from a struct format of one element. The width comes from the view: 'l' has 8
// bytes or, after '=' or '<', 4.
std::optional<DType> parse_format(std::string_view format, std::uint8_t bits) {
  if (!format.empty() && (format[0] == '@' || format[0] == '=' || format[0] == '<')) {
    format.remove_prefix(1);
  }
  std::uint8_t code = kDTypeFloat;
  if (format.size() == 2 && format[0] == 'Z') {
    format.remove_prefix(1);
    code = kDTypeComplex;
  }
  if (format.size() != 1) return std::nullopt;
  constexpr std::string_view kFloats = "efd", kSigned = "bhilqn", kUnsigned = "BcHILQN";
  if (kFloats.find(format[0]) != kFloats.npos) return DType{code, bits, 1};
  if (code == kDTypeComplex) return std::nullopt;
  if (kSigned.find(format[0]) != kSigned.npos) return DType{kDTypeInt, bits, 1};
  if (kUnsigned.find(format[0]) != kUnsigned.npos) return DType{kDTypeUInt, bits, 1};
  if (format[0] == '?') return DType{kDTypeBool, bits, 1};
  return std::nullopt;
}

[[noreturn]] void refuse_elements(py::handle object, const std::string& why,
                                  const char* remedy = "view it as uint8, or convert it") {
  throw py::type_error(std::string("the elements of this ") + Py_TYPE(object.ptr())->tp_name +
                       " are not supported (" + why + "); " + remedy + " to one of " +
                       std::string(supported_dtypes()));
}

[[noreturn]] void refuse_format(py::handle object, std::string_view format) {
  if (format.starts_with('>') || format.starts_with('!')) {
    refuse_elements(object, "their byte order is not this machine's");
  }
  if (format == "O") {
    refuse_elements(object, "objects are references, not bytes", "convert it");
  }
  refuse_elements(object, "buffer format '" + std::string(format) + "'");
}

std::string_view format_of(const Py_buffer& view) {
  return view.format == nullptr ? "B" : view.format;
}

DType view_dtype(py::handle object, const Py_buffer& view) {
  if (const auto dtype = dtype_of(view)) return *dtype;
  refuse_format(object, format_of(view));
}

// ml_dtypes adds bfloat16 and float8 to numpy as types that have a name but no format.
std::optional<DType> named_dtype(py::handle object) {
  const py::object numpy_dtype = py::getattr(object, "dtype", py::none());
  const auto name = py::str(py::getattr(numpy_dtype, "name", py::none())).cast<std::string>();
  if (name != "bfloat16" && !name.starts_with("float8_")) return std::nullopt;
  return DType::parse(name);
}

// The array refused to give its format (the Python error is set). Fills the view without it where
// the dtype's name is enough; returns nothing where __dlpack__ may know more.
std::optional<DType> fill_without_format(py::handle object, Py_buffer& view) {
  const py::error_already_set refusal;
  if (const auto dtype = named_dtype(object)) {
    if (PyObject_GetBuffer(object.ptr(), &view, PyBUF_STRIDES) == 0) return dtype;
    PyErr_Clear();
  } else if (refusal.matches(PyExc_ValueError) && py::hasattr(object, "dtype")) {
    refuse_elements(object, py::str(refusal.value()).cast<std::string>());
  }
  if (py::hasattr(object, "__dlpack__")) return std::nullopt;
  throw refusal;
}

std::optional<DType> fill_view(py::handle object, Py_buffer& view) {
  if (PyObject_GetBuffer(object.ptr(), &view, PyBUF_RECORDS_RO) == 0) {
    return view_dtype(object, view);
  }
  return fill_without_format(object, view);
}

}  // namespace

std::optional<DType> dtype_of(const Py_buffer& view) {
  if (view.itemsize <= 0 || view.itemsize > 16) return std::nullopt;
  return parse_format(format_of(view), static_cast<std::uint8_t>(view.itemsize * 8));
}

bool import_buffer(py::handle object, ImportedArray& array) {
  if (!PyObject_CheckBuffer(object.ptr())) return false;
  auto held = std::make_unique<HeldBuffer>();
  const Py_buffer& view = held->view;
  const auto dtype = fill_view(object, held->view);
  if (!dtype) return false;
  const auto ndim = static_cast<std::size_t>(view.ndim);
  const std::span shape(view.shape, ndim);
  const auto address = reinterpret_cast<std::uintptr_t>(view.buf);
  // ctypes omits the strides of its arrays, although they were requested.
  array.layout = view.strides == nullptr
                     ? Layout::contiguous(address, *dtype, shape)
                     : Layout{address, *dtype, Dims(shape), Dims(std::span(view.strides, ndim))};
  array.writable = view.readonly == 0;
  if (!array.writable) array.why_read_only = "its owner lends it read-only";
  array.owner = make_owner(std::move(held));
  return true;
}

}  // namespace zerohop::bindings
