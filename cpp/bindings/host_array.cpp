#include "bindings/host_array.hpp"

#include <pybind11/numpy.h>

#include <optional>
#include <utility>

#include "base/error.hpp"
#include "bindings/array_import.hpp"
#include "bindings/buffer_import.hpp"
#include "bindings/handles.hpp"

namespace zerohop::bindings {
namespace {

// Plain numbers in native byte order; nullopt: something else, perhaps supported.
std::optional<DType> plain_dtype(const py::dtype& numpy) {
  if (numpy.byteorder() == '>' || numpy.itemsize() > 8) return std::nullopt;
  const auto bits = static_cast<std::uint8_t>(8 * numpy.itemsize());
  switch (numpy.kind()) {
    case 'b': return DType{kDTypeBool, bits, 1};
    case 'i': return DType{kDTypeInt, bits, 1};
    case 'u': return DType{kDTypeUInt, bits, 1};
    case 'f':  // 1-byte float: ml_dtypes' float8_e5m2
      return bits > 8 ? std::optional(DType{kDTypeFloat, bits, 1}) : std::nullopt;
    default: return std::nullopt;
  }
}

// Leaves an unreadable array to the general path; anything that is not an Exception (Ctrl-C) ends
// the call.
void pass_over(const py::error_already_set& error) {
  if (!error.matches(PyExc_Exception)) throw error;
}

}  // namespace

bool HostArray::take(const engine::Endpoint& endpoint, py::handle array) {
  release();
  if (array.is_none() || PyList_Check(array.ptr()) || PyTuple_Check(array.ptr())) return false;
  if (const auto* memory = find_memory(array)) return take_memory(endpoint, *memory);
  return take_numpy(array) || take_buffer(array) || take_any(array);
}

// Releasing may run Python code, and a pending exception must survive that.
void HostArray::release() noexcept {
  numpy_ = py::object();
  owner_.reset();
  if (view_.obj == nullptr) return;
  const py::error_scope pending_error;
  PyBuffer_Release(&view_);
}

bool HostArray::take_memory(const engine::Endpoint& endpoint, const engine::Memory& memory) {
  if (!memory.on_host() || memory.closed() || memory.endpoint() != endpoint.address().id) {
    return false;
  }
  return is(memory.layout(), memory.writable(), memory.registration()->owner);
}

// A NumPy array of numbers: reading its fields takes a tenth of the time of a view.
bool HostArray::take_numpy(py::handle array) {
  const auto& numpy = py::detail::npy_api::get();
  if (Py_TYPE(array.ptr()) != reinterpret_cast<PyTypeObject*>(numpy.PyArray_Type_)) return false;
  const auto given = py::reinterpret_borrow<py::array>(array);
  const auto dtype = plain_dtype(given.dtype());
  if (!dtype || (given.flags() & py::array::c_style) == 0 || given.size() == 0) return false;
  numpy_ = given;
  dtype_ = *dtype;
  begin_ = reinterpret_cast<std::byte*>(py::detail::array_proxy(array.ptr())->data);
  nbytes_ = static_cast<std::uint64_t>(given.nbytes());
  rows_ = given.ndim() > 0 ? given.shape(0) : -1;
  writable_ = given.writeable();
  return true;
}

bool HostArray::take_buffer(py::handle array) {
  if (!PyObject_CheckBuffer(array.ptr())) return false;
  drain_released();
  if (PyObject_GetBuffer(array.ptr(), &view_, PyBUF_RECORDS_RO) != 0) {
    pass_over(py::error_already_set());
    return false;
  }
  const auto dtype = dtype_of(view_);
  if (!dtype || view_.len == 0 || PyBuffer_IsContiguous(&view_, 'C') == 0) {
    release();
    return false;
  }
  dtype_ = *dtype;
  begin_ = static_cast<std::byte*>(view_.buf);
  nbytes_ = static_cast<std::uint64_t>(view_.len);
  rows_ = view_.ndim > 0 ? view_.shape[0] : -1;
  writable_ = view_.readonly == 0;
  return true;
}

bool HostArray::take_any(py::handle array) {
  try {
    ImportedArray imported = import_array(array);
    return imported.device == "cpu" &&
           is(imported.layout, imported.writable, std::move(imported.owner));
  } catch (const py::error_already_set& error) {
    pass_over(error);
  } catch (const py::builtin_exception&) {
  } catch (const Error&) {
  }
  return false;
}

bool HostArray::is(const Layout& layout, bool writable, Owner owner) {
  if (!layout.is_contiguous() || layout.count() == 0) return false;
  dtype_ = layout.dtype;
  begin_ = reinterpret_cast<std::byte*>(layout.address);
  nbytes_ = layout.nbytes();
  rows_ = layout.ndim() > 0 ? layout.shape[0] : -1;
  writable_ = writable;
  owner_ = std::move(owner);
  return true;
}

}  // namespace zerohop::bindings
