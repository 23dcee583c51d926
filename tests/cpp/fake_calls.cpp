#include "fake_calls.hpp"

#include <algorithm>
#include <array>
#include <cstring>
#include <string_view>

#include "base/host_memory.hpp"
#include "driver/cuda_constants.hpp"

namespace zerohop::testing {
namespace {

using driver::kCudaErrorInvalidContext;
using driver::kCudaErrorInvalidValue;
using driver::kCudaSuccess;
using gpu::MemoryKind;

FakeCuda& fake() { return FakeCuda::in_use(); }

// A function is the address of its name.
std::array<std::string_view, 10> kernels{"zerohop_copy_pieces",   "zerohop_copy_ranges",
                                         "zerohop_wait_word",     "zerohop_forget_notes",
                                         "zerohop_group_chunks",  "zerohop_group_packets",
                                         "zerohop_replayed_copy", "zerohop_replayed_note",
                                         "zerohop_replayed_wait", "zerohop_reduce"};

template <typename T>
const T& argument(void** arguments, int which) {
  return *static_cast<const T*>(arguments[which]);
}

template <typename T>
void put(void* value, T what) {
  std::memcpy(value, &what, sizeof what);
}

}  // namespace

CudaResult host_allocate(void** pages, std::size_t nbytes, unsigned flags) {
  if (fake().fails("host_allocate")) return fake().error;
  if (!FakeCuda::has_context()) return kCudaErrorInvalidContext;
  return flags == driver::kCudaHostPortable ? fake().copies.pin(pages, nbytes)
                                            : kCudaErrorInvalidValue;
}
CudaResult host_free(void* pages) { return fake().copies.unpin(pages); }
CudaResult host_register(void* pages, std::size_t nbytes, unsigned flags) {
  if (fake().fails("host_register")) return fake().error;
  if (!FakeCuda::has_context()) return kCudaErrorInvalidContext;
  ++fake().registrations;
  if (fake().refuses_registration) return fake().error;
  constexpr unsigned wanted = driver::kCudaRegisterPortable | driver::kCudaRegisterMapped;
  constexpr unsigned one_of = driver::kCudaRegisterReadOnly | driver::kCudaRegisterIoMemory;
  const bool read_only = (flags & driver::kCudaRegisterReadOnly) != 0;
  const bool io = (flags & driver::kCudaRegisterIoMemory) != 0;
  if (io && populate(pages, nbytes)) return kCudaErrorInvalidValue;  // it is memory
  return (flags & ~one_of) == wanted && (flags & one_of) != one_of
             ? fake().copies.register_pages(pages, nbytes, read_only)
             : kCudaErrorInvalidValue;
}
CudaResult host_unregister(void* pages) { return fake().copies.unregister_pages(pages); }
CudaResult host_get_address(CudaAddress* on_gpu, void* on_host, unsigned) {
  *on_gpu = reinterpret_cast<CudaAddress>(on_host) + fake().registered_elsewhere;
  return fake().copies.is_locked(on_host) ? kCudaSuccess : kCudaErrorInvalidValue;
}
CudaResult copy_to_host(void* to, CudaAddress from, std::size_t nbytes, void* stream) {
  if (fake().fails("copy_to_host")) return fake().error;
  return !FakeCuda::has_context() ? kCudaErrorInvalidContext
                                  : fake().copies.to_host(to, from, nbytes, stream);
}
CudaResult copy_to_device(CudaAddress to, const void* from, std::size_t nbytes, void* stream) {
  if (fake().fails("copy_to_device")) return fake().error;
  return !FakeCuda::has_context() ? kCudaErrorInvalidContext
                                  : fake().copies.to_device(to, from, nbytes, stream);
}
CudaResult stream_create(void** stream, unsigned flags) {
  if (fake().fails("stream_create")) return fake().error;
  if (!FakeCuda::has_context()) return kCudaErrorInvalidContext;
  return flags == driver::kCudaStreamNonBlocking ? fake().copies.create_stream(stream)
                                                 : kCudaErrorInvalidValue;
}
CudaResult stream_create_with_priority(void** stream, unsigned flags, int priority) {
  if (priority != FakeCuda::kGreatestPriority) return kCudaErrorInvalidValue;
  const CudaResult result = stream_create(stream, flags);
  if (result == driver::kCudaSuccess) ++fake().urgent_streams;
  return result;
}
CudaResult copy(CudaAddress to, CudaAddress from, std::size_t nbytes, void* stream) {
  if (fake().fails("copy")) return fake().error;
  return !FakeCuda::has_context() ? kCudaErrorInvalidContext
                                  : fake().copies.copy(to, from, nbytes, stream);
}
CudaResult stream_query(void* stream) {
  if (fake().fails("stream_query")) return fake().error;
  return fake().copies.query_stream(stream);
}
CudaResult stream_wait_event(void* stream, void* event, unsigned) {
  if (fake().fails("stream_wait_event")) return fake().error;
  return fake().copies.wait_event(stream, event);
}
CudaResult stream_write_value(void* stream, CudaAddress to, std::uint32_t value, unsigned flags) {
  if (fake().fails("stream_write_value")) return fake().error;
  return flags == driver::kCudaWriteValueDefault ? fake().copies.write_value(stream, to, value)
                                                 : kCudaErrorInvalidValue;
}
CudaResult stream_get_context(void* stream, driver::CudaContext* context) {
  if (fake().fails("stream_get_context")) return fake().error;
  *context = stream == fake().foreign_stream ? stream : FakeCuda::context();
  return driver::kCudaSuccess;
}
CudaResult stream_is_capturing(void* stream, int* status) {
  if (fake().fails("stream_is_capturing")) return fake().error;
  *status = fake().copies.is_captured(stream) ? 1 : 0;
  return driver::kCudaSuccess;
}
CudaResult stream_get_capture(void* stream, int* status, unsigned long long*, void** graph,
                              void* const**, std::size_t*) {
  if (fake().fails("stream_get_capture")) return fake().error;
  return fake().copies.get_capture(stream, status, graph);
}
CudaResult user_object_create(void** object, void* value, driver::CudaHostFunction destroy,
                              unsigned references, unsigned flags) {
  if (fake().fails("user_object_create")) return fake().error;
  return references == 1 && flags == driver::kCudaUserObjectUnsynchronized
             ? fake().copies.create_user_object(object, value, destroy)
             : kCudaErrorInvalidValue;
}
CudaResult user_object_release(void* object, unsigned) {
  return fake().copies.retain_user_object(nullptr, object);
}
CudaResult graph_retain_user_object(void* graph, void* object, unsigned references,
                                    unsigned flags) {
  if (fake().fails("graph_retain_user_object")) return fake().error;
  return references == 1 && flags == driver::kCudaGraphTakesReference
             ? fake().copies.retain_user_object(graph, object)
             : kCudaErrorInvalidValue;
}
CudaResult stream_destroy(void* stream) { return fake().copies.destroy_stream(stream); }
CudaResult event_create(void** event, unsigned flags) {
  if (fake().fails("event_create")) return fake().error;
  if (!FakeCuda::has_context()) return kCudaErrorInvalidContext;
  return flags == driver::kCudaEventDisableTiming ? fake().copies.create_event(event)
                                                  : kCudaErrorInvalidValue;
}
CudaResult event_destroy(void* event) { return fake().copies.destroy_event(event); }
CudaResult event_record(void* event, void* stream) {
  if (fake().fails("event_record")) return fake().error;
  return !FakeCuda::has_context() ? kCudaErrorInvalidContext : fake().copies.record(event, stream);
}
CudaResult event_query(void* event) {
  if (fake().fails("event_query")) return fake().error;
  // A call that a thread may not make while any captures, unless in relaxed mode.
  if (fake().capturing && FakeCuda::mode_here() != driver::kCudaCaptureRelaxed) {
    return driver::kCudaErrorCaptureFirst;
  }
  return fake().copies.query(event);
}

CudaResult module_load(driver::CudaModule* module, const void* image) {
  if (fake().fails("module_load")) return fake().error;
  if (!FakeCuda::has_context()) return kCudaErrorInvalidContext;
  *module = const_cast<void*>(image);
  ++fake().modules;
  return kCudaSuccess;
}
CudaResult module_unload(driver::CudaModule) {
  --fake().modules;
  return kCudaSuccess;
}
CudaResult module_get_function(driver::CudaFunction* function, driver::CudaModule,
                               const char* name) {
  if (fake().fails("module_get_function")) return fake().error;
  auto* const found = std::ranges::find(kernels, name);
  if (found == kernels.end()) return kCudaErrorInvalidValue;
  *function = found;
  return kCudaSuccess;
}
CudaResult launch_kernel(const driver::CudaLaunch* launch, driver::CudaFunction function,
                         void** arguments, void**) {
  if (fake().fails("launch_kernel")) return fake().error;
  if (!FakeCuda::has_context()) return kCudaErrorInvalidContext;
  const auto which = static_cast<const std::string_view*>(function) - kernels.data();
  const bool one_thread = which == 2 || which == 7 || which == 8;
  const bool whole_warps = launch->threads_x % 32 == 0 || one_thread;
  if (launch->blocks_x == 0 || !whole_warps) return kCudaErrorInvalidValue;
  driver::CudaStream stream = launch->stream;
  switch (which) {
    case 0:
      return fake().copies.pieces(argument<driver::CudaAddress>(arguments, 0),
                                  argument<std::uint32_t>(arguments, 1),
                                  argument<gpu::Tail>(arguments, 2), stream);
    case 1:
      return fake().copies.ranges(argument<gpu::FewRanges>(arguments, 0),
                                  argument<gpu::Tail>(arguments, 1), stream);
    case 2: return fake().copies.wait(argument<gpu::Wait>(arguments, 0), stream);
    case 4:
    case 5: return fake().copies.group(argument<gpu::GroupCall>(arguments, 0), stream);
    case 6:
      return fake().copies.replayed_copy(argument<gpu::FewRanges>(arguments, 0),
                                         argument<driver::CudaAddress>(arguments, 1), stream);
    case 7: return fake().copies.replayed_note(argument<gpu::ReplayedNote>(arguments, 0), stream);
    case 8: return fake().copies.replayed_wait(argument<gpu::ReplayedWait>(arguments, 0), stream);
    case 9: return fake().copies.reduce(argument<gpu::ReduceCall>(arguments, 0), stream);
    default:
      return fake().copies.forget(argument<driver::CudaAddress>(arguments, 0),
                                  argument<const gpu::NoteAt*>(arguments, 1),
                                  argument<std::uint32_t>(arguments, 2), stream);
  }
}

void put_pointer_attribute(const FakeCuda::Memory& m, std::uint64_t address, int attribute,
                           void* value) {
  const bool on_host = m.kind == MemoryKind::pinned;
  switch (attribute) {
    case driver::kCudaMemoryType:
      return put(value, on_host ? driver::kCudaMemoryHost : driver::kCudaMemoryDevice);
    case driver::kCudaAddressOnGpu: return put(value, address + m.shift_on_gpu);
    case driver::kCudaIsManaged: return put(value, unsigned{m.kind == MemoryKind::managed});
    case driver::kCudaDeviceOrdinal: return put(value, m.ordinal);
    case driver::kCudaBufferId: return put(value, m.buffer_id);
    case driver::kCudaRangeBegin: return put(value, m.range.begin);
    case driver::kCudaRangeNbytes: return put(value, m.range.end - m.range.begin);
    case driver::kCudaMappingBegin: return put(value, m.mapping.begin);
    case driver::kCudaMappingNbytes: return put(value, m.mapping.end - m.mapping.begin);
    case driver::kCudaIsGpudirectCapable: return put(value, unsigned{m.gpudirect_capable});
    case driver::kCudaIsLegacyIpcCapable: return put(value, unsigned{m.kind == MemoryKind::plain});
    case driver::kCudaAllowedHandleTypes:
      return put(value, std::uint64_t{m.kind == MemoryKind::vmm});
    case driver::kCudaSyncMemops: return put(value, unsigned{0});
    case driver::kCudaPool: return put(value, std::uint64_t{m.kind == MemoryKind::pool});
    default: return;
  }
}

}  // namespace zerohop::testing
