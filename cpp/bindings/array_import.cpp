#include "bindings/array_import.hpp"

#include "bindings/buffer_import.hpp"
#include "bindings/demands.hpp"
#include "bindings/dlpack_import.hpp"

namespace zerohop::bindings {
namespace {

// Writes through such an array would land in an undefined order.
bool repeats_elements(const Layout& layout) noexcept {
  if (layout.count() == 0) return false;  // whatever its strides
  for (std::size_t i = 0; i < layout.ndim(); ++i) {
    if (layout.strides[i] == 0 && layout.shape[i] > 1) return true;
  }
  return false;
}

void finish(ImportedArray& array, py::handle object) {
  if (!array.layout.dtype.supported()) {
    throw py::type_error(array.layout.dtype.name() + " of this " + type_name(object) +
                         " is not supported; view it as uint8, or as one of " +
                         std::string(supported_dtypes()));
  }
  array.layout.validate();
  if (array.writable && repeats_elements(array.layout)) {
    array.writable = false;
    array.why_read_only = "several of its elements are the same bytes (a stride of 0)";
  }
}

bool import_any(py::handle object, ImportedArray& array) {
  return import_exchange_table(object, array) || import_buffer(object, array) ||
         import_dlpack(object, array);
}

}  // namespace

ImportedArray import_array(py::handle object) {
  drain_released();
  ImportedArray array;
  if (!import_any(object, array)) {
    throw py::type_error(
        a_type_name(object) +
        " is not an array: it has neither __dlpack__ nor the buffer protocol; convert "
        "it first, for example with numpy.asarray");
  }
  finish(array, object);
  return array;
}

}  // namespace zerohop::bindings
