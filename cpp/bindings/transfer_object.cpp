// Transfers as Python objects: every call creates and drops one.
#include "bindings/transfer_object.hpp"

#include <array>
#include <cstddef>
#include <memory>
#include <type_traits>
#include <utility>

namespace zerohop::bindings {
namespace {

using py::detail::instance;
using Holder = py::class_<TransferHandle>::holder_type;
static_assert(std::is_same_v<Holder, std::unique_ptr<TransferHandle>>);

PyTypeObject* transfer_type = nullptr;
destructor usual_dealloc = nullptr;

// For an object created by new_transfer(). Destroying its value may run Python code, which must not
// see a pending exception.
void dealloc_transfer(PyObject* self) {
  auto& made = *reinterpret_cast<instance*>(self);
  const bool is_plain = Py_TYPE(self) == transfer_type && !made.simple_instance_registered &&
                        made.simple_holder_constructed && !made.has_patients &&
                        made.weakrefs == nullptr;
  if (!is_plain || PyErr_Occurred() != nullptr) return usual_dealloc(self);
  delete static_cast<TransferHandle*>(made.simple_value_holder[0]);
  transfer_type->tp_free(self);
  Py_DECREF(transfer_type);
}

// Memory of TransferHandles that were dropped. The GIL guards it.
struct Kept {
  std::array<void*, 32> memory;
  std::size_t count = 0;
};
Kept kept;

}  // namespace

void* TransferHandle::operator new(std::size_t nbytes) {
  return kept.count > 0 ? kept.memory[--kept.count] : ::operator new(nbytes);
}

void TransferHandle::operator delete(void* memory) noexcept {
  if (kept.count == kept.memory.size()) return ::operator delete(memory);
  kept.memory[kept.count++] = memory;
}

void make_transfer_objects_fast(py::handle type) {
  transfer_type = reinterpret_cast<PyTypeObject*>(type.inc_ref().ptr());
  usual_dealloc = std::exchange(transfer_type->tp_dealloc, &dealloc_transfer);
}

PyObject* new_transfer(TransferHandle&& transfer) {
  auto value = std::make_unique<TransferHandle>(std::move(transfer));
  PyObject* self = transfer_type->tp_alloc(transfer_type, 0);  // zero-initialized
  if (self == nullptr) throw py::error_already_set();
  auto& made = *reinterpret_cast<instance*>(self);
  made.owned = true;
  made.simple_layout = true;
  made.simple_value_holder[0] = value.get();
  new (&made.simple_value_holder[1]) Holder(std::move(value));
  made.simple_holder_constructed = true;
  return self;
}

}  // namespace zerohop::bindings
