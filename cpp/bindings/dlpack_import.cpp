#include "bindings/dlpack_import.hpp"

#include <limits>
#include <span>
#include <string_view>
#include <vector>

#include "bindings/dlpack.hpp"

namespace zerohop::bindings {
namespace {

constexpr std::uint32_t kMajor = 1;  // other major versions have another struct layout
constexpr int kMinor = 3;            // the newest minor version that this file knows

template <typename Managed>
class HeldTensor final : public Held {
 public:
  explicit HeldTensor(Managed* tensor) : tensor_(tensor) {}
  ~HeldTensor() override {
    if (tensor_->deleter != nullptr) tensor_->deleter(tensor_);
  }

 private:
  Managed* tensor_;
};

template <typename Managed>
Owner own_tensor(Managed* tensor) {
  return make_owner(std::make_unique<HeldTensor<Managed>>(tensor));
}

std::string first_line(const py::error_already_set& error) {
  const auto text = py::str(error.value()).cast<std::string>();
  return text.substr(0, text.find('\n'));  // torch appends its C++ stack
}

// DLPack counts strides in elements; NULL means C order in versions before 1.2.
Dims stride_bytes(const DLTensor& tensor) {
  Dims strides(std::span(tensor.strides, static_cast<std::size_t>(tensor.ndim)));
  const std::int64_t itemsize = (tensor.dtype.bits + 7) / 8;
  for (std::size_t i = 0; i < strides.size(); ++i) {
    if (__builtin_mul_overflow(strides[i], itemsize, &strides[i])) {
      throw py::value_error("a DLPack tensor has strides beyond the address space");
    }
  }
  return strides;
}

void fill_layout(const DLTensor& tensor, ImportedArray& array) {
  if (tensor.ndim < 0)
    throw py::buffer_error("a DLPack tensor has a negative number of dimensions");
  const std::uint64_t address = reinterpret_cast<std::uintptr_t>(tensor.data) + tensor.byte_offset;
  const DType dtype{tensor.dtype.code, tensor.dtype.bits, tensor.dtype.lanes};
  array.layout = Layout::contiguous(address, dtype,
                                    std::span(tensor.shape, static_cast<std::size_t>(tensor.ndim)));
  if (tensor.strides != nullptr) array.layout.strides = stride_bytes(tensor);
  if (tensor.data == nullptr && array.layout.count() > 0) {
    throw py::buffer_error(
        "the array has elements but no memory, as fake and meta tensors do; materialise it first");
  }
  array.device = device_name(tensor.device);
}

// A borrowed reference to a class attribute, or null: neither costs an exception nor runs code.
PyObject* class_attribute(py::handle object, PyObject* name) {
  return _PyType_Lookup(Py_TYPE(object.ptr()), name);
}

const DLPackExchangeAPI* exchange_table(py::handle object) {
  static PyObject* const name = PyUnicode_InternFromString("__dlpack_c_exchange_api__");
  constexpr char kCapsule[] = "dlpack_exchange_api";
  PyObject* capsule = class_attribute(object, name);
  if (capsule == nullptr || !PyCapsule_IsValid(capsule, kCapsule)) return nullptr;
  auto* header = static_cast<DLPackExchangeAPIHeader*>(PyCapsule_GetPointer(capsule, kCapsule));
  while (header != nullptr && header->version.major != kMajor) header = header->prev_api;
  auto* table = reinterpret_cast<const DLPackExchangeAPI*>(header);
  const bool borrows = table != nullptr && table->dltensor_from_py_object_no_sync != nullptr;
  return borrows ? table : nullptr;
}

bool is_true(py::object answer) {
  if (!answer) throw py::error_already_set();
  return answer.ptr() == Py_True;
}

bool method_says(py::handle object, PyObject* method) {
  return is_true(
      py::reinterpret_steal<py::object>(PyObject_CallMethodNoArgs(object.ptr(), method)));
}

// The table exports bytes without torch's own checks, so they are repeated here.
void check_bytes_are_values(py::handle tensor, DType dtype) {
  static PyObject* const requires_grad = PyUnicode_InternFromString("requires_grad");
  static PyObject* const is_conj = PyUnicode_InternFromString("is_conj");
  static PyObject* const is_neg = PyUnicode_InternFromString("is_neg");
  if (is_true(py::reinterpret_steal<py::object>(PyObject_GetAttr(tensor.ptr(), requires_grad)))) {
    throw py::buffer_error(
        "the tensor requires grad, and copying its bytes would lose that; pass tensor.detach()");
  }
  if (dtype.code == kDTypeComplex && method_says(tensor, is_conj)) {
    throw py::buffer_error("the tensor is conjugated lazily; use its resolve_conj()");
  }
  // Views of conjugated complex tensors are negated lazily; no other tensors are.
  if ((dtype.code == kDTypeComplex || dtype.code == kDTypeFloat) && method_says(tensor, is_neg)) {
    throw py::buffer_error("the tensor is negated lazily; use its resolve_neg()");
  }
}

// A torch tensor can get other memory while it is registered (tensor.data = ..., set_()), so own
// its storage. (zerohop.torch_storage makes it keep its bytes.)
Owner own_exporter(py::handle object, DType dtype) {
  static PyObject* const untyped_storage = PyUnicode_InternFromString("untyped_storage");
  if (class_attribute(object, untyped_storage) == nullptr) return own_object(object);
  check_bytes_are_values(object, dtype);
  const auto storage =
      py::reinterpret_steal<py::object>(PyObject_CallMethodNoArgs(object.ptr(), untyped_storage));
  if (!storage) throw py::error_already_set();
  return own_object(storage);
}

bool is_immutable(py::handle object) {
  const py::str module = py::type::handle_of(object).attr("__module__");
  return module.cast<std::string_view>().starts_with("jax");
}

void take_versioned(py::handle capsule, ImportedArray& array) {
  auto* managed = static_cast<DLManagedTensorVersioned*>(
      PyCapsule_GetPointer(capsule.ptr(), kVersionedCapsule));
  if (PyCapsule_SetName(capsule.ptr(), kUsedVersionedCapsule) != 0) throw py::error_already_set();
  array.owner = own_tensor(managed);
  if (managed->version.major != kMajor) {
    throw py::buffer_error("the array uses DLPack " + std::to_string(managed->version.major) +
                           ".x, which this version of zerohop does not support; it reads 1.x");
  }
  fill_layout(managed->dl_tensor, array);
  if ((managed->flags & DLPACK_FLAG_BITMASK_IS_COPIED) != 0) {
    array.writable = false;
    array.why_read_only = "its producer exported a copy, so writes would not reach the array";
  } else if ((managed->flags & DLPACK_FLAG_BITMASK_READ_ONLY) != 0) {
    array.writable = false;
    array.why_read_only = "its producer exports it read-only";
  }
}

void take_legacy(py::handle capsule, ImportedArray& array) {
  auto* managed =
      static_cast<DLManagedTensor*>(PyCapsule_GetPointer(capsule.ptr(), kLegacyCapsule));
  if (PyCapsule_SetName(capsule.ptr(), kUsedLegacyCapsule) != 0) throw py::error_already_set();
  array.owner = own_tensor(managed);
  fill_layout(managed->dl_tensor, array);
}

// Tries the newest form of the call first; producers older than an argument raise TypeError.
py::object request_capsule(const py::object& method) {
  using namespace py::literals;
  const auto version = py::make_tuple(kMajor, kMinor);
  for (const py::dict& arguments : {py::dict("max_version"_a = version, "copy"_a = false),
                                    py::dict("max_version"_a = version)}) {
    try {
      return method(**arguments);
    } catch (const py::error_already_set& error) {
      if (!error.matches(PyExc_TypeError)) throw;
    }
  }
  return method();
}

}  // namespace

bool import_exchange_table(py::handle object, ImportedArray& array) {
  const DLPackExchangeAPI* table = exchange_table(object);
  if (table == nullptr) return false;
  DLTensor tensor{};
  if (table->dltensor_from_py_object_no_sync(object.ptr(), &tensor) != 0) {
    py::error_already_set error;
    const std::string what = "the array cannot be shared through DLPack: " + first_line(error);
    py::raise_from(error, PyExc_BufferError, what.c_str());
    throw py::error_already_set();
  }
  fill_layout(tensor, array);
  array.owner = own_exporter(object, array.layout.dtype);
  array.writable = true;
  return true;
}

bool import_dlpack(py::handle object, ImportedArray& array) {
  if (!py::hasattr(object, "__dlpack__")) return false;
  const py::object capsule = request_capsule(object.attr("__dlpack__"));
  array.writable = true;
  if (PyCapsule_IsValid(capsule.ptr(), kVersionedCapsule)) {
    take_versioned(capsule, array);
  } else if (PyCapsule_IsValid(capsule.ptr(), kLegacyCapsule)) {
    take_legacy(capsule, array);
  } else {
    throw py::buffer_error("__dlpack__ of this " + std::string(Py_TYPE(object.ptr())->tp_name) +
                           " did not return an unused DLPack capsule");
  }
  if (array.writable && is_immutable(object)) {
    array.writable = false;
    array.why_read_only = "JAX arrays are immutable";
  }
  return true;
}

}  // namespace zerohop::bindings
