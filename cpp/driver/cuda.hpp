// The CUDA driver function table: every libcuda symbol that zerohop calls, named once.
//
// The prototypes are spelled out here, so the build needs no CUDA toolkit. Each symbol is requested
// with the version of the prototype below: a newer driver then still returns that signature.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>

namespace zerohop::driver {

// The driver's types, as its ABI defines them.
using CudaResult = int;                     // CUresult
using CudaDevice = int;                     // CUdevice: an ordinal's handle
using CudaAddress = unsigned long long;     // CUdeviceptr
using CudaContext = void*;                  // CUcontext
using CudaDeviceAttribute = int;            // CUdevice_attribute
using CudaPointerAttribute = int;           // CUpointer_attribute
using CudaP2pAttribute = int;               // CUdevice_P2PAttribute
using CudaCaptureMode = int;                // CUstreamCaptureMode
using CudaAllocation = unsigned long long;  // CUmemGenericAllocationHandle
using CudaStream = void*;                   // CUstream
using CudaEvent = void*;                    // CUevent
using CudaModule = void*;                   // CUmodule
using CudaFunction = void*;                 // CUfunction
using CudaGraph = void*;                    // CUgraph
using CudaGraphNode = void*;                // CUgraphNode
using CudaUserObject = void*;               // CUuserObject
using CudaHostFunction = void (*)(void*);   // CUhostFn
struct CudaMemoryProperties;                // CUmemAllocationProp
struct CudaMemoryAccess;                    // CUmemAccessDesc
struct CudaLaunch;                          // CUlaunchConfig
struct CudaUuid {                           // CUuuid
  unsigned char bytes[16];
};
struct CudaIpcHandle {  // CUipcMemHandle
  unsigned char bytes[64];
};
constexpr CudaResult kCudaSuccess = 0;

// X(member, symbol, minimum version as 1000 * major + 10 * minor, parameters); all return
// CudaResult.
#define ZEROHOP_CUDA_SYMBOLS(X)                                                                    \
  X(init, cuInit, 2000, (unsigned flags))                                                          \
  X(driver_get_version, cuDriverGetVersion, 2020, (int* version))                                  \
  X(device_get_count, cuDeviceGetCount, 2000, (int* count))                                        \
  X(device_get, cuDeviceGet, 2000, (CudaDevice * device, int ordinal))                             \
  X(device_get_name, cuDeviceGetName, 2000, (char* name, int nbytes, CudaDevice device))           \
  X(device_get_uuid, cuDeviceGetUuid, 11040, (CudaUuid * uuid, CudaDevice device))                 \
  X(device_get_attribute, cuDeviceGetAttribute, 2000,                                              \
    (int* value, CudaDeviceAttribute attribute, CudaDevice device))                                \
  X(device_get_pci_bus_id, cuDeviceGetPCIBusId, 4010, (char* text, int nbytes, CudaDevice device)) \
  X(device_can_access_peer, cuDeviceCanAccessPeer, 4000,                                           \
    (int* can, CudaDevice device, CudaDevice peer))                                                \
  X(device_get_p2p_attribute, cuDeviceGetP2PAttribute, 8000,                                       \
    (int* value, CudaP2pAttribute attribute, CudaDevice device, CudaDevice peer))                  \
  X(primary_context_retain, cuDevicePrimaryCtxRetain, 7000,                                        \
    (CudaContext * context, CudaDevice device))                                                    \
  X(primary_context_release, cuDevicePrimaryCtxRelease, 11000, (CudaDevice device))                \
  X(context_push, cuCtxPushCurrent, 4000, (CudaContext context))                                   \
  X(context_pop, cuCtxPopCurrent, 4000, (CudaContext * context))                                   \
  X(context_get_current, cuCtxGetCurrent, 4000, (CudaContext * context))                           \
  X(context_get_device, cuCtxGetDevice, 2000, (CudaDevice * device))                               \
  X(context_enable_peer_access, cuCtxEnablePeerAccess, 4000, (CudaContext peer, unsigned flags))   \
  X(context_get_stream_priority_range, cuCtxGetStreamPriorityRange, 5050,                          \
    (int* least, int* greatest))                                                                   \
  X(context_synchronize, cuCtxSynchronize, 2000, ())                                               \
  X(thread_exchange_capture_mode, cuThreadExchangeStreamCaptureMode, 10010,                        \
    (CudaCaptureMode * mode))                                                                      \
  X(pointer_get_attributes, cuPointerGetAttributes, 7000,                                          \
    (unsigned count, CudaPointerAttribute* attributes, void** values, CudaAddress address))        \
  X(pointer_set_attribute, cuPointerSetAttribute, 6000,                                            \
    (const void* value, CudaPointerAttribute attribute, CudaAddress address))                      \
  X(memory_allocate, cuMemAlloc, 3020, (CudaAddress * address, std::size_t nbytes))                \
  X(memory_free, cuMemFree, 3020, (CudaAddress address))                                           \
  X(memory_get_info, cuMemGetInfo, 3020, (std::size_t* free, std::size_t* total))                  \
  X(memory_get_granularity, cuMemGetAllocationGranularity, 10020,                                  \
    (std::size_t* nbytes, const CudaMemoryProperties* properties, int option))                     \
  X(memory_create, cuMemCreate, 10020,                                                             \
    (CudaAllocation * allocation, std::size_t nbytes, const CudaMemoryProperties* properties,      \
     unsigned long long flags))                                                                    \
  X(memory_reserve, cuMemAddressReserve, 10020,                                                    \
    (CudaAddress * address, std::size_t nbytes, std::size_t alignment, CudaAddress wish,           \
     unsigned long long flags))                                                                    \
  X(memory_free_addresses, cuMemAddressFree, 10020, (CudaAddress address, std::size_t nbytes))     \
  X(memory_map, cuMemMap, 10020,                                                                   \
    (CudaAddress address, std::size_t nbytes, std::size_t offset, CudaAllocation allocation,       \
     unsigned long long flags))                                                                    \
  X(memory_unmap, cuMemUnmap, 10020, (CudaAddress address, std::size_t nbytes))                    \
  X(memory_set_access, cuMemSetAccess, 10020,                                                      \
    (CudaAddress address, std::size_t nbytes, const CudaMemoryAccess* accesses,                    \
     std::size_t count))                                                                           \
  X(memory_set, cuMemsetD8Async, 3020,                                                             \
    (CudaAddress address, unsigned char value, std::size_t nbytes, CudaStream stream))             \
  X(memory_retain_allocation, cuMemRetainAllocationHandle, 11000,                                  \
    (CudaAllocation * allocation, void* address))                                                  \
  X(memory_release_allocation, cuMemRelease, 10020, (CudaAllocation allocation))                   \
  X(memory_export_range, cuMemGetHandleForAddressRange, 11070,                                     \
    (void* handle, CudaAddress address, std::size_t nbytes, int handle_type,                       \
     unsigned long long flags))                                                                    \
  X(memory_export, cuMemExportToShareableHandle, 10020,                                            \
    (void* handle, CudaAllocation allocation, int handle_type, unsigned long long flags))          \
  X(memory_import, cuMemImportFromShareableHandle, 10020,                                          \
    (CudaAllocation * allocation, void* handle, int handle_type))                                  \
  X(ipc_export, cuIpcGetMemHandle, 4010, (CudaIpcHandle * handle, CudaAddress address))            \
  X(ipc_open, cuIpcOpenMemHandle, 11000,                                                           \
    (CudaAddress * address, CudaIpcHandle handle, unsigned flags))                                 \
  X(ipc_close, cuIpcCloseMemHandle, 4010, (CudaAddress address))                                   \
  X(host_allocate, cuMemHostAlloc, 2020, (void** address, std::size_t nbytes, unsigned flags))     \
  X(host_free, cuMemFreeHost, 2000, (void* address))                                               \
  X(host_register, cuMemHostRegister, 6050, (void* address, std::size_t nbytes, unsigned flags))   \
  X(host_unregister, cuMemHostUnregister, 4000, (void* address))                                   \
  X(host_get_address, cuMemHostGetDevicePointer, 3020,                                             \
    (CudaAddress * on_gpu, void* on_host, unsigned flags))                                         \
  X(copy_to_host, cuMemcpyDtoHAsync, 3020,                                                         \
    (void* to, CudaAddress from, std::size_t nbytes, CudaStream stream))                           \
  X(copy_to_device, cuMemcpyHtoDAsync, 3020,                                                       \
    (CudaAddress to, const void* from, std::size_t nbytes, CudaStream stream))                     \
  X(copy, cuMemcpyAsync, 4000,                                                                     \
    (CudaAddress to, CudaAddress from, std::size_t nbytes, CudaStream stream))                     \
  X(stream_create, cuStreamCreate, 2000, (CudaStream * stream, unsigned flags))                    \
  X(stream_create_with_priority, cuStreamCreateWithPriority, 5050,                                 \
    (CudaStream * stream, unsigned flags, int priority))                                           \
  X(stream_destroy, cuStreamDestroy, 4000, (CudaStream stream))                                    \
  X(stream_query, cuStreamQuery, 2000, (CudaStream stream))                                        \
  X(stream_wait_event, cuStreamWaitEvent, 3020,                                                    \
    (CudaStream stream, CudaEvent event, unsigned flags))                                          \
  X(stream_write_value, cuStreamWriteValue32, 11070,                                               \
    (CudaStream stream, CudaAddress to, std::uint32_t value, unsigned flags))                      \
  X(stream_get_context, cuStreamGetCtx, 9020, (CudaStream stream, CudaContext * context))          \
  X(stream_is_capturing, cuStreamIsCapturing, 10000, (CudaStream stream, int* status))             \
  X(stream_get_capture, cuStreamGetCaptureInfo, 11030,                                             \
    (CudaStream stream, int* status, unsigned long long* id, CudaGraph* graph,                     \
     const CudaGraphNode** dependencies, std::size_t* count))                                      \
  X(user_object_create, cuUserObjectCreate, 11030,                                                 \
    (CudaUserObject * object, void* value, CudaHostFunction destroy, unsigned references,          \
     unsigned flags))                                                                              \
  X(user_object_release, cuUserObjectRelease, 11030, (CudaUserObject object, unsigned references)) \
  X(graph_retain_user_object, cuGraphRetainUserObject, 11030,                                      \
    (CudaGraph graph, CudaUserObject object, unsigned references, unsigned flags))                 \
  X(event_create, cuEventCreate, 2000, (CudaEvent * event, unsigned flags))                        \
  X(event_destroy, cuEventDestroy, 4000, (CudaEvent event))                                        \
  X(event_record, cuEventRecord, 2000, (CudaEvent event, CudaStream stream))                       \
  X(event_query, cuEventQuery, 2000, (CudaEvent event))                                            \
  X(module_load, cuModuleLoadData, 2000, (CudaModule * module, const void* image))                 \
  X(module_unload, cuModuleUnload, 2000, (CudaModule module))                                      \
  X(module_get_function, cuModuleGetFunction, 2000,                                                \
    (CudaFunction * function, CudaModule module, const char* name))                                \
  X(launch_kernel, cuLaunchKernelEx, 11060,                                                        \
    (const CudaLaunch* launch, CudaFunction function, void** arguments, void** options))           \
  X(flush_gpudirect_writes, cuFlushGPUDirectRDMAWrites, 11030, (int target, int scope))            \
  X(get_error_name, cuGetErrorName, 6000, (CudaResult result, const char** text))                  \
  X(get_error_string, cuGetErrorString, 6000, (CudaResult result, const char** text))

struct Cuda {
#define ZEROHOP_CUDA_MEMBER(member, symbol, version, parameters) \
  CudaResult(*member) parameters = nullptr;
  ZEROHOP_CUDA_SYMBOLS(ZEROHOP_CUDA_MEMBER)
#undef ZEROHOP_CUDA_MEMBER
};

// The result of loading libcuda: a table, or the reason why there is none.
struct CudaLibrary {
  std::shared_ptr<const Cuda> cuda;  // null when the driver is absent or too old
  std::string reason;                // why, and what to install; empty when cuda is set
};

// The driver's own lookup (cuGetProcAddress_v2, driver 12.0 and newer): the one symbol for dlsym.
using CudaGetProcAddress = CudaResult (*)(const char* symbol, void** function, int version,
                                          std::uint64_t flags, int* status);

// Fills a table through `get_proc_address`; null: the library has no such function.
CudaLibrary fill_cuda(CudaGetProcAddress get_proc_address);

// Loads the library called `soname`. Does not throw for an absent library, and does not call
// cuInit: a process that has initialized CUDA can no longer fork.
CudaLibrary load_cuda(const char* soname);

// Loads libcuda.so.1 on the first call; later calls return the same answer.
const CudaLibrary& libcuda();

}  // namespace zerohop::driver
