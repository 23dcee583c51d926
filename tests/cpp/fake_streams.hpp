// Pinned memory, streams and events in FakeCuda's table: they forward to its FakeCopies.
#pragma once

#include <cstddef>
#include <cstdint>

#include "driver/cuda.hpp"

namespace zerohop::testing {

using driver::CudaAddress;
using driver::CudaResult;

CudaResult host_allocate(void** pages, std::size_t nbytes, unsigned flags);
CudaResult host_free(void* pages);
CudaResult host_register(void* pages, std::size_t nbytes, unsigned flags);
CudaResult host_unregister(void* pages);
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
CudaResult stream_destroy(void* stream);
CudaResult event_create(void** event, unsigned flags);
CudaResult event_destroy(void* event);
CudaResult event_record(void* event, void* stream);
CudaResult event_query(void* event);

}  // namespace zerohop::testing
