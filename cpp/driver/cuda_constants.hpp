// The constants of the CUDA driver's ABI that zerohop uses, under readable names. A test compares
// each with <cuda.h> where a toolkit is installed.
#pragma once

#include "driver/cuda.hpp"

namespace zerohop::driver {

enum : CudaResult {
  kCudaErrorInvalidValue = 1,
  kCudaErrorOutOfMemory = 2,
  kCudaErrorNotInitialized = 3,
  kCudaErrorInvalidContext = 201,
  kCudaErrorAlreadyMapped = 208,
  kCudaErrorNotReady = 600,
  kCudaErrorPeerAccessAlready = 704,  // enabled
  kCudaErrorAlreadyRegistered = 712,  // host memory
  kCudaErrorNotSupported = 801,
  kCudaErrorCaptureFirst = 900,  // this and the next: calls that disturb a stream capture
  kCudaErrorCaptureLast = 908,
  kCudaErrorTimeout = 909,
};

enum : CudaDeviceAttribute {
  kCudaComputeMajor = 75,
  kCudaComputeMinor = 76,
  kCudaSameRegisteredAddress = 91,  // registered host memory has the same address on the GPU
  kCudaFlushRemoteWrites = 98,      // cuStreamWaitValue may flush
  kCudaVmmSupported = 102,          // cuMemCreate and its like
  kCudaFdExportSupported = 103,     // ... with handles that are file descriptors
  kCudaGpudirectWithVmm = 110,      // cuMemCreate knows gpuDirectRDMACapable
  kCudaGpudirectSupported = 116,    // nvidia_p2p_get_pages and its like
  kCudaFlushOptions = 117,          // bits of CudaFlushOption
  kCudaWritesOrdering = 118,        // a CudaScope
  kCudaDmabufSupported = 124,
};

constexpr CudaP2pAttribute kCudaP2pNativeAtomics = 3;

enum CudaFlushOption : int { kCudaFlushByHost = 1, kCudaFlushByStream = 2 };

// Who sees GPUDirect writes without a flush, and to whom a flush makes them visible.
enum CudaScope : int { kCudaScopeNone = 0, kCudaScopeOwner = 100, kCudaScopeAllDevices = 200 };

constexpr int kCudaFlushCurrentContext = 0;  // CUflushGPUDirectRDMAWritesTarget

enum : CudaPointerAttribute {
  kCudaMemoryType = 2,
  kCudaAddressOnGpu = 3,  // of host memory too
  kCudaSyncMemops = 6,
  kCudaBufferId = 7,
  kCudaIsManaged = 8,
  kCudaDeviceOrdinal = 9,
  kCudaIsLegacyIpcCapable = 10,
  kCudaRangeBegin = 11,  // of the allocation, or of the address reservation
  kCudaRangeNbytes = 12,
  kCudaAllowedHandleTypes = 14,
  kCudaIsGpudirectCapable = 15,
  kCudaPool = 17,
  kCudaMappingNbytes = 18,  // of the physical memory mapped there
  kCudaMappingBegin = 19,
};

enum CudaMemoryType : unsigned { kCudaMemoryHost = 1, kCudaMemoryDevice = 2 };

// CUmemAllocationProp and CUmemAccessDesc, with the enumerations they use.
enum CudaMemoryLocationType : int { kCudaLocationDevice = 1 };
enum CudaMemoryHandleType : int { kCudaHandleNone = 0, kCudaHandleFd = 1 };
struct CudaMemoryLocation {
  CudaMemoryLocationType type;
  int ordinal;
};
struct CudaMemoryProperties {
  int type;  // kCudaMemoryPinned
  CudaMemoryHandleType handle_types;
  CudaMemoryLocation location;
  void* win32_metadata;
  unsigned char compression;
  unsigned char gpudirect_capable;
  unsigned short usage;
  unsigned char reserved[4];
};
static_assert(sizeof(CudaMemoryProperties) == 32);
struct CudaMemoryAccess {
  CudaMemoryLocation location;
  int flags;  // kCudaAccessReadWrite
};

struct CudaLaunchAttribute {  // CUlaunchAttribute
  int kind;
  int unused;
  union {
    int flag;
    unsigned char room[64];
  } value;
};
static_assert(sizeof(CudaLaunchAttribute) == 72);

struct CudaLaunch {  // CUlaunchConfig
  unsigned blocks_x, blocks_y, blocks_z;
  unsigned threads_x, threads_y, threads_z;
  unsigned shared_nbytes;
  CudaStream stream;
  CudaLaunchAttribute* attributes;
  unsigned attribute_count;
};
// CU_LAUNCH_ATTRIBUTE_PROGRAMMATIC_STREAM_SERIALIZATION: the kernel may start while the previous
// one finishes, and waits for it itself.
constexpr int kCudaLaunchOverlaps = 6;
static_assert(sizeof(CudaMemoryAccess) == 12);
constexpr int kCudaMemoryPinned = 1;        // CU_MEM_ALLOCATION_TYPE_PINNED: it stays in place
constexpr int kCudaAccessReadWrite = 3;     // CUmemAccess_flags
constexpr int kCudaGranularityMinimum = 0;  // CUmemAllocationGranularity_flags

constexpr unsigned kCudaIpcLazyPeerAccess = 1;  // CU_IPC_MEM_LAZY_ENABLE_PEER_ACCESS

constexpr int kCudaRangeHandleDmabuf = 1;                   // CUmemRangeHandleType
constexpr unsigned long long kCudaDmabufMappingPcie = 1;    // CUmemRangeFlags, driver 12.8
constexpr int kCudaDmabufMappingPcieMinimumDriver = 12080;  // as cuDriverGetVersion counts
constexpr CudaCaptureMode kCudaCaptureRelaxed = 2;
constexpr unsigned kCudaUserObjectUnsynchronized = 1;  // CU_USER_OBJECT_NO_DESTRUCTOR_SYNC
constexpr unsigned kCudaGraphTakesReference = 1;       // CU_GRAPH_USER_OBJECT_MOVE
constexpr unsigned kCudaHostPortable = 1;        // CU_MEMHOSTALLOC_PORTABLE: pinned for all GPUs
constexpr unsigned kCudaRegisterPortable = 1;    // CU_MEMHOSTREGISTER_PORTABLE
constexpr unsigned kCudaRegisterMapped = 2;      // CU_MEMHOSTREGISTER_DEVICEMAP
constexpr unsigned kCudaRegisterIoMemory = 4;    // CU_MEMHOSTREGISTER_IOMEMORY
constexpr unsigned kCudaRegisterReadOnly = 8;    // CU_MEMHOSTREGISTER_READ_ONLY
constexpr unsigned kCudaStreamNonBlocking = 1;   // not ordered with the legacy default stream
constexpr unsigned kCudaWriteValueDefault = 0;   // CU_STREAM_WRITE_VALUE_DEFAULT: behind a barrier
constexpr unsigned kCudaEventDisableTiming = 2;  // CUevent_flags
// CU_STREAM_LEGACY: the default stream, which PyTorch and CuPy use by default.
inline const CudaStream kCudaLegacyStream = reinterpret_cast<CudaStream>(1);
// CU_STREAM_PER_THREAD: the other default stream; larger handles are created streams.
inline const CudaStream kCudaPerThreadStream = reinterpret_cast<CudaStream>(2);

}  // namespace zerohop::driver
