// Registers GPU memory with the Endpoint's adapter, and finds existing registrations.
#pragma once

#include <map>
#include <memory>

#include "base/causes.hpp"
#include "base/locks.hpp"
#include "engine/memory/host_registrations.hpp"
#include "engine/memory/region_cache.hpp"
#include "engine/memory/registration_probe.hpp"
#include "gpu/copier.hpp"

namespace zerohop::engine {

// GB/s into and out of an H200 through soft0, by chunk: 64 KiB 1.6, 128 KiB 2.7, 256 KiB 3.7 to
// 4.2, 512 KiB 5.0 to 5.4, 1 MiB 5.4 to 5.7. So this is about 6 % below the best, with half of its
// pinned memory: two rings of 8 chunks for each GPU and Peer.
inline constexpr std::size_t kDefaultStagingChunk = 512 << 10;  // bytes

struct GpuOptions {
  RegistrationDemand registration = RegistrationDemand::automatic;  // default of a request
  RelaxedOrdering relaxed_ordering = RelaxedOrdering::automatic;
  RegionCache::Limits cache;
  // Bytes copied at a time between a GPU and pinned host memory, on staged routes; a multiple of
  // 4096.
  std::size_t staging_chunk = kDefaultStagingChunk;
};

class GpuRegistrations {
 public:
  GpuRegistrations(Adapter adapter, std::shared_ptr<const driver::Cuda> cuda, HostFacts host,
                   const GpuOptions& options);
  ~GpuRegistrations() { cache_->close(); }
  GpuRegistrations(const GpuRegistrations&) = delete;
  GpuRegistrations& operator=(const GpuRegistrations&) = delete;

  struct Request {
    Extent extent;
    int ordinal = 0;  // of the GPU
    bool writable = false;
    bool shared = true;  // see HostRegistrations
    RegistrationDemand demand = RegistrationDemand::automatic;
  };
  // The choice is never null and never `refused`; where it is `staged`, there is a region only with
  // the software HCA, and only if staging was not requested. Throws RegistrationError with the
  // reason when the requested way is not possible or the memory is not on a GPU, and CudaError when
  // the GPU fails.
  GpuRegion find_or_create(const Request& request);

  // Throws CudaError.
  std::shared_ptr<gpu::Device> device(int ordinal);
  // What is known about `ordinal` together with the adapter. Includes trials once memory open to
  // adapters has been registered.
  PairFacts pair_facts(int ordinal);
  RegionCache::Stats stats() const { return cache_->stats(); }

 private:
  struct Pair {
    std::shared_ptr<gpu::Device> device;
    PairFacts facts;
    std::shared_ptr<gpu::Copier> copier;  // null until some memory needs it
  };

  Pair pair(int ordinal);
  Pair tried_pair(const Request& request, const MemoryFacts& memory);
  // Whether the adapter is the software HCA, which copies unless the request demands another way.
  bool copies(const Request& request) const noexcept;
  GpuRegion find_or_register(const Request& request);
  GpuRegion create(const Pair& pair, const Request& request, const MemoryFacts& memory);
  std::shared_ptr<gpu::Copier> copier(int ordinal);
  std::shared_ptr<rdma::MemoryRegion> register_copied(const Request& request);
  std::shared_ptr<rdma::MemoryRegion> try_choice(const Pair& pair, const Request& request,
                                                 const RegistrationChoice& choice,
                                                 PairFacts& facts) const;
  MemoryFacts ask_memory(const RegionCache::Key& key) const;
  void sweep_sometimes();
  void note_fall(const Request& request, const RegistrationChoice& choice);

  const Adapter adapter_;
  const std::shared_ptr<const driver::Cuda> cuda_;
  const HostFacts host_;
  const GpuOptions options_;
  const std::shared_ptr<RegionCache> cache_;
  PendingRegistrations pending_;
  Causes falls_;                          // to staged
  Mutex<Rank::gpu_registrations> mutex_;  // guards all members below, never held in a driver call
  std::map<int, Pair> pairs_;
  std::uint64_t misses_since_sweep_ = 0;
};

// The adapter behind the domain, with libmlx5's functions if that can drive it.
Adapter make_adapter(std::shared_ptr<rdma::ProtectionDomain> domain);

}  // namespace zerohop::engine
