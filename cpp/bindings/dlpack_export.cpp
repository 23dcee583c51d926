#include "bindings/dlpack_export.hpp"

#include <cstdint>
#include <utility>

#include "bindings/dlpack.hpp"

namespace zerohop::bindings {
namespace {

// What a consumer receives a pointer into; destroyed when the consumer calls the deleter, on any
// thread and without the GIL: the owner can be released there.
template <typename Managed>
struct Export {
  Managed managed{};
  Dims shape;
  Dims strides;  // in elements
  Owner owner;

  static void destroy(Managed* managed) { delete static_cast<Export*>(managed->manager_ctx); }
};

// The consumer may start at once, whatever its stream: bytes are complete before their arrival is
// reported, so there is no stream to wait for.
void check_stream(const DLDevice& device, const py::object& stream) {
  if (stream.is_none() || stream.equal(py::int_(-1))) return;  // -1: torch, for the CPU too
  if (device.device_type == kDLCPU) {
    throw py::buffer_error("host memory knows no streams; pass stream=None");
  }
  if (!py::isinstance<py::int_>(stream) || !(stream > py::int_(0))) {
    throw py::buffer_error(
        "a CUDA stream is None, -1, 1 (the default), 2 (the thread's default) or a handle above "
        "2; 0 is not allowed (array API)");
  }
}

DLDevice check_request(const ExportedArray& array, const DLPackRequest& request) {
  const DLDevice device = parse_device(array.device);
  if (!request.dl_device.is_none() && !request.dl_device.equal(dlpack_device(array.device))) {
    throw py::buffer_error("the memory is on " + array.device +
                           " and stays there; import it first and copy it to another device then");
  }
  if (!request.copy.is_none() && request.copy.cast<bool>()) {
    throw py::buffer_error(
        "memory is exported without a copy; import it with copy=None and copy that");
  }
  check_stream(device, request.stream);
  return device;
}

// A dimension of at most one element never uses its stride; it gets the C-order stride, so that odd
// byte strides there do not matter.
Dims strides_in_elements(const Layout& layout) {
  Dims strides = Layout::contiguous(0, {kDTypeUInt, 8, 1}, layout.shape.span()).strides;
  if (layout.count() == 0) return strides;
  const auto itemsize = static_cast<std::int64_t>(layout.itemsize());
  for (std::size_t i = 0; i < layout.ndim(); ++i) {
    if (layout.shape[i] == 1) continue;
    if (layout.strides[i] % itemsize != 0) {
      throw py::buffer_error("DLPack counts strides in elements, and " +
                             shape_string(layout.strides.span()) + " bytes are not multiples of " +
                             std::to_string(itemsize) + "; use the buffer protocol");
    }
    strides[i] = layout.strides[i] / itemsize;
  }
  return strides;
}

// An unused capsule owns its target; a consumer renames it.
template <typename Managed>
void destroy_capsule(PyObject* capsule) {
  constexpr bool kVersioned = std::is_same_v<Managed, DLManagedTensorVersioned>;
  const char* name = kVersioned ? kVersionedCapsule : kLegacyCapsule;
  if (!PyCapsule_IsValid(capsule, name)) return;
  auto* managed = static_cast<Managed*>(PyCapsule_GetPointer(capsule, name));
  managed->deleter(managed);
}

template <typename Managed>
py::capsule make_capsule(const ExportedArray& array, DLDevice device, const char* name) {
  auto exported = std::make_unique<Export<Managed>>();
  exported->shape = array.layout.shape;
  exported->strides = strides_in_elements(array.layout);
  exported->owner = array.owner;
  exported->managed.manager_ctx = exported.get();
  exported->managed.deleter = &Export<Managed>::destroy;
  DLTensor& tensor = exported->managed.dl_tensor;
  // The standard requires null for an empty array.
  const std::uint64_t address = array.layout.count() == 0 ? 0 : array.layout.address;
  tensor.data = reinterpret_cast<void*>(address);
  tensor.device = device;
  tensor.ndim = static_cast<std::int32_t>(array.layout.ndim());
  tensor.dtype = {array.layout.dtype.code, array.layout.dtype.bits, array.layout.dtype.lanes};
  tensor.shape = exported->shape.data();
  tensor.strides = exported->strides.data();
  if constexpr (std::is_same_v<Managed, DLManagedTensorVersioned>) {
    exported->managed.version = {DLPACK_MAJOR_VERSION, DLPACK_MINOR_VERSION};
    exported->managed.flags = array.writable ? 0 : DLPACK_FLAG_BITMASK_READ_ONLY;
  }
  py::capsule capsule(&exported->managed, name, &destroy_capsule<Managed>);
  exported.release();  // owned by the capsule now
  return capsule;
}

}  // namespace

py::capsule to_dlpack(const ExportedArray& array, const DLPackRequest& request) {
  const DLDevice device = check_request(array, request);
  const py::object& version = request.max_version;
  if (!version.is_none() && py::tuple(version)[0].cast<int>() >= 1) {
    return make_capsule<DLManagedTensorVersioned>(array, device, kVersionedCapsule);
  }
  if (!array.writable) {
    throw py::buffer_error(
        "read-only memory needs DLPack 1.0, which can say so; pass max_version=(1, 0) or newer");
  }
  return make_capsule<DLManagedTensor>(array, device, kLegacyCapsule);
}

DeviceTuple dlpack_device(const std::string& device) {
  const DLDevice parsed = parse_device(device);
  return py::make_tuple(static_cast<int>(parsed.device_type), parsed.device_id);
}

}  // namespace zerohop::bindings
