#include "fake_streams.hpp"

#include "driver/cuda_constants.hpp"
#include "fake_cuda.hpp"

namespace zerohop::testing {
namespace {

using driver::kCudaErrorInvalidContext;
using driver::kCudaErrorInvalidValue;

FakeCuda& fake() { return FakeCuda::in_use(); }

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
  const bool read_only = (flags & driver::kCudaRegisterReadOnly) != 0;
  return (flags & ~driver::kCudaRegisterReadOnly) == wanted
             ? fake().copies.register_pages(pages, nbytes, read_only)
             : kCudaErrorInvalidValue;
}
CudaResult host_unregister(void* pages) { return fake().copies.unregister_pages(pages); }
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
  *status = stream == fake().captured_stream ? 1 : 0;
  return driver::kCudaSuccess;
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
}  // namespace zerohop::testing
