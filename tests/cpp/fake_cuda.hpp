// A CUDA table without a GPU: it simulates memory of every kind, counts what is retained, allocated
// and exported, and fails the n-th call on demand.
#pragma once

#include <atomic>
#include <map>
#include <memory>
#include <mutex>
#include <set>
#include <string>
#include <vector>

#include "driver/cuda_constants.hpp"
#include "eventually.hpp"
#include "fake_copies.hpp"
#include "fake_vmm.hpp"
#include "gpu/allocation.hpp"

namespace zerohop::testing {

class FakeCuda {
 public:
  FakeCuda();   // becomes the one behind table(); its GPU resembles an H200 with driver 13.0
  ~FakeCuda();  // must outlive every object made through the table
  FakeCuda(const FakeCuda&) = delete;
  FakeCuda& operator=(const FakeCuda&) = delete;

  std::shared_ptr<const driver::Cuda> table() const { return table_; }

  // The fail_at-th call (from 1; 0: none) fails with `error`.
  std::atomic<int> fail_at = 0;
  driver::CudaResult error = 999;
  std::atomic<int> calls = 0;
  std::atomic<bool> gone = false;  // every call fails: the context was destroyed
  std::string failed;              // the function that was made to fail

  int gpus = 1;                                    // all like the first
  std::set<int> neighbours;                        // GPUs that reach the first one's memory
  bool refuses_peers = false;                      // to enable peer access
  std::atomic<bool> refuses_registration = false;  // of host pages, with `error`
  std::atomic<int> registrations = 0;              // of host pages, attempted
  std::uint64_t registered_elsewhere = 0;       // the GPU's addresses of such pages minus the CPU's
  bool native_atomics = true;                   // between GPUs
  static constexpr int kGreatestPriority = -5;  // an H200's
  std::atomic<int> urgent_streams{0};           // created with it
  std::map<int, int> attributes;                // of the GPU
  int driver_version = 13000;
  driver::CudaResult export_error = driver::kCudaSuccess;  // of every export
  bool exports_map = true;                                 // to where the CPU reaches them
  std::atomic<bool> exports_hang{false};                   // those of cuIpcGetMemHandle
  std::atomic<int> exports_hanging{0};                     // now
  void end_hang() {
    exports_hang.store(false);
    exports_hang.notify_all();
  }
  bool no_memory = false;     // left on the GPU
  bool pcie_mapping = false;  // whether exports support that flag

  struct Memory {
    gpu::MemoryKind kind = gpu::MemoryKind::plain;
    Extent range;    // allocation, or reservation
    Extent mapping;  // physical memory
    int ordinal = 0;
    bool gpudirect_capable = true;
    std::uint64_t buffer_id = 0;
    std::uint64_t shift_on_gpu = 0;  // of its addresses
  };
  // Adds one allocation at [begin, begin + nbytes) with a fresh buffer id, which is returned.
  std::uint64_t add(gpu::MemoryKind kind, std::uint64_t begin, std::uint64_t nbytes);
  // Chunks of `chunk_nbytes` each, mapped consecutively in one reservation.
  void add_chunks(std::uint64_t begin, std::uint64_t chunk_nbytes, int count);
  void remove(std::uint64_t begin);
  // An allocation with contents, which copies can access.
  std::uint64_t add_bytes(std::uint64_t nbytes, std::byte fill = std::byte{0});
  FakeCopies copies;
  FakeVmm vmm{copies};
  Memory* find(std::uint64_t address);

  std::atomic<int> retained = 0;  // primary contexts
  std::atomic<int> depth = 0;     // of all threads' context stacks
  std::atomic<int> allocated{0};  // by the table itself
  std::atomic<int> opened = 0;    // IPC handles
  std::atomic<int> modules{0};    // of kernels, loaded
  int allocations_held = 0;       // by cuMemRetainAllocationHandle
  int flushes = 0;
  std::atomic<bool> busy = false;                         // blocks context_synchronize
  std::atomic<bool> capturing = false;                    // context_synchronize is refused
  std::atomic<int> synchronized = 0;                      // calls that returned success
  void* foreign_stream = nullptr;                         // belongs to a context of its own
  std::atomic<driver::CudaCaptureMode> capture_mode = 0;  // of any thread: global
  struct Export {
    Extent range;
    unsigned long long flags;
    int fd;
  };
  std::vector<Export> exports;
  int open_exports() const;  // exported descriptors that are still open

  // For the table's functions.
  static FakeCuda& in_use();
  static bool exists();
  static bool has_context();             // this thread
  static driver::CudaContext context();  // the primary one
  static driver::CudaCaptureMode mode_here();
  bool fails(const char* function);

 private:
  std::shared_ptr<const driver::Cuda> table_;
  std::mutex mutex_;                        // guards the next two
  std::map<std::uint64_t, Memory> memory_;  // by the begin of the mapping
  std::uint64_t next_buffer_id_ = 900;
};

// Outlives a FakeCuda's users: destroyed once the last of them is gone, including memory freed on a
// separate thread.
struct AllGivenBack {
  const FakeCuda& cuda;
  double patience = kTimeout;  // less where a copy that was given up keeps something for good

  ~AllGivenBack() {
    (void)eventually([this] { return cuda.retained == 0; }, patience);
  }
};

}  // namespace zerohop::testing
