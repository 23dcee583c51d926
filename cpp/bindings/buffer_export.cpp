#include "bindings/buffer_export.hpp"

#include <memory>
#include <new>
#include <string>
#include <utility>

namespace zerohop::bindings {
namespace {

// What the view points into; destroyed with the view.
struct ExportedBuffer {
  Dims shape;
  Dims strides;
  Owner owner;
};

const char* unsigned_format(std::uint32_t itemsize) noexcept {
  switch (itemsize) {
    case 1: return "B";
    case 2: return "H";
    case 4: return "I";
    default: return "L";
  }
}

const char* struct_format(DType dtype) noexcept {
  switch (dtype.code) {
    case kDTypeBool: return "?";
    case kDTypeInt:
      return dtype.bits == 8 ? "b" : dtype.bits == 16 ? "h" : dtype.bits == 32 ? "i" : "l";
    case kDTypeFloat: return dtype.bits == 16 ? "e" : dtype.bits == 32 ? "f" : "d";
    case kDTypeComplex:
      if (dtype.bits != 32) return dtype.bits == 64 ? "Zf" : "Zd";
      [[fallthrough]];
    default: return unsigned_format(dtype.itemsize());
  }
}

bool is_fortran_contiguous(const Layout& layout) {
  Layout reversed{layout.address, layout.dtype, {}, {}};
  for (std::size_t i = layout.ndim(); i-- > 0;) {
    reversed.shape.push_back(layout.shape[i]);
    reversed.strides.push_back(layout.strides[i]);
  }
  return reversed.is_contiguous();
}

// Why the consumer's flags cannot be satisfied; null when they can.
const char* refusal(const ExportedArray& array, int flags) {
  const auto asks = [flags](int wanted) { return (flags & wanted) == wanted; };
  if (array.device != "cpu") {
    return "only host memory has a buffer; torch.from_dlpack(memory).cpu() copies that of a GPU";
  }
  if (asks(PyBUF_WRITABLE) && !array.writable) return "the memory is read-only";
  if (asks(PyBUF_STRIDES) && !asks(PyBUF_C_CONTIGUOUS) && !asks(PyBUF_F_CONTIGUOUS) &&
      !asks(PyBUF_ANY_CONTIGUOUS)) {
    return nullptr;
  }
  if (array.layout.is_contiguous() && !asks(PyBUF_F_CONTIGUOUS)) return nullptr;
  const bool fortran_will_do = asks(PyBUF_F_CONTIGUOUS) || asks(PyBUF_ANY_CONTIGUOUS);
  if (fortran_will_do && is_fortran_contiguous(array.layout)) return nullptr;
  return "the memory is not contiguous in the order asked for";
}

void release_buffer(PyObject*, Py_buffer* view) {
  delete static_cast<ExportedBuffer*>(view->internal);
}

}  // namespace

bool has_buffer_format(DType dtype) noexcept {
  return dtype.code <= kDTypeFloat || dtype.code == kDTypeBool ||
         (dtype.code == kDTypeComplex && dtype.bits != 32);
}

int fill_buffer(PyObject* exporter, Py_buffer* view, int flags,
                const ExportedArray& array) noexcept {
  view->obj = nullptr;
  try {
    if (const char* why = refusal(array, flags)) {
      PyErr_SetString(PyExc_BufferError, why);
      return -1;
    }
    auto exported =
        std::make_unique<ExportedBuffer>(array.layout.shape, array.layout.strides, array.owner);
    const bool dimensions = (flags & PyBUF_ND) != 0 && array.layout.ndim() > 0;
    view->buf = reinterpret_cast<void*>(array.layout.address);
    view->len = static_cast<Py_ssize_t>(array.layout.nbytes());
    view->itemsize = array.layout.itemsize();
    view->readonly = array.writable ? 0 : 1;
    view->ndim = static_cast<int>(array.layout.ndim());
    view->format = (flags & PyBUF_FORMAT) != 0
                       ? const_cast<char*>(struct_format(array.layout.dtype))
                       : nullptr;
    view->shape = dimensions ? exported->shape.data() : nullptr;
    view->strides =
        dimensions && (flags & PyBUF_STRIDES) == PyBUF_STRIDES ? exported->strides.data() : nullptr;
    view->suboffsets = nullptr;
    view->internal = exported.release();
  } catch (const std::bad_alloc&) {
    PyErr_NoMemory();
    return -1;
  }
  view->obj = Py_NewRef(exporter);
  return 0;
}

void add_buffer_protocol(PyHeapTypeObject* type, getbufferproc get_buffer) noexcept {
  type->as_buffer.bf_getbuffer = get_buffer;
  type->as_buffer.bf_releasebuffer = release_buffer;
  type->ht_type.tp_as_buffer = &type->as_buffer;
}

}  // namespace zerohop::bindings
