// The functions of FakeCuda's table that lie in files of their own: pinned memory, streams and
// events, which forward to its FakeCopies; kernels, those of gpu::Kernels; and facts about
// addresses.
#pragma once

#include <cstddef>
#include <cstdint>

#include "fake_cuda.hpp"

namespace zerohop::testing {

using driver::CudaAddress;
using driver::CudaResult;

CudaResult host_allocate(void** pages, std::size_t nbytes, unsigned flags);
CudaResult host_free(void* pages);
CudaResult host_register(void* pages, std::size_t nbytes, unsigned flags);
CudaResult host_unregister(void* pages);
CudaResult host_get_address(CudaAddress* on_gpu, void* on_host, unsigned flags);
CudaResult copy_to_host(void* to, CudaAddress from, std::size_t nbytes, void* stream);
CudaResult copy_to_device(CudaAddress to, const void* from, std::size_t nbytes, void* stream);
CudaResult stream_create(void** stream, unsigned flags);
CudaResult stream_create_with_priority(void** stream, unsigned flags, int priority);
CudaResult copy(CudaAddress to, CudaAddress from, std::size_t nbytes, void* stream);
CudaResult stream_query(void* stream);
CudaResult stream_wait_event(void* stream, void* event, unsigned);
CudaResult stream_write_value(void* stream, CudaAddress to, std::uint32_t value, unsigned flags);
CudaResult stream_get_context(void* stream, driver::CudaContext* context);
CudaResult stream_is_capturing(void* stream, int* status);
CudaResult stream_get_capture(void* stream, int* status, unsigned long long* id, void** graph,
                              void* const** dependencies, std::size_t* count);
CudaResult user_object_create(void** object, void* value, driver::CudaHostFunction destroy,
                              unsigned references, unsigned flags);
CudaResult user_object_release(void* object, unsigned references);
CudaResult graph_retain_user_object(void* graph, void* object, unsigned references, unsigned flags);
CudaResult stream_destroy(void* stream);
CudaResult event_create(void** event, unsigned flags);
CudaResult event_destroy(void* event);
CudaResult event_record(void* event, void* stream);
CudaResult event_query(void* event);

CudaResult module_load(driver::CudaModule* module, const void* image);
CudaResult module_unload(driver::CudaModule module);
CudaResult module_get_function(driver::CudaFunction* function, driver::CudaModule module,
                               const char* name);
CudaResult launch_kernel(const driver::CudaLaunch* launch, driver::CudaFunction function,
                         void** arguments, void** options);

// cuPointerGetAttributes.
// Of the memory that contains `address`.
void put_pointer_attribute(const FakeCuda::Memory& memory, std::uint64_t address, int attribute,
                           void* value);

}  // namespace zerohop::testing
