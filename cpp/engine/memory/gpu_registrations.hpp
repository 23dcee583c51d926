// Registers GPU memory with the Endpoint's adapter, and finds the registration it has already.
#pragma once

#include <map>
#include <memory>

#include "base/causes.hpp"
#include "base/locks.hpp"
#include "engine/memory/region_cache.hpp"
#include "engine/memory/registration_probe.hpp"
#include "engine/memory/registrations.hpp"
#include "gpu/copier.hpp"

namespace zerohop::engine {

// In GB/s into and out of an H200 through soft0, by chunk: 64 KiB 1.6, 128 KiB 2.7, 256 KiB 3.7 to
// 4.2, 512 KiB 5.0 to 5.4, 1 MiB 5.4 to 5.7. So this one is about 6 % below the best, with half of
// its pinned memory: two rings of 8 chunks for each GPU and Peer.
inline constexpr std::size_t kDefaultStagingChunk = 512 << 10;  // bytes

struct GpuOptions {
  RegistrationDemand registration = RegistrationDemand::automatic;  // of what asks for no other
  RelaxedOrdering relaxed_ordering = RelaxedOrdering::automatic;
  RegionCache::Limits cache;
  // Bytes that are copied at a time between a GPU and pinned memory of the host, where that is the
  // way; a multiple of 4096.
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
    bool shared = true;  // as of Registrations
    RegistrationDemand demand = RegistrationDemand::automatic;
  };
  // The choice is never null and never `refused`; where it is `staged`, only the software HCA has a
  // region, unless staged was asked for. Throws
  // RegistrationError with the reason when the way asked for is not to be had or the memory is no
  // GPU's, and CudaError when the GPU fails.
  Registered find_or_create(const Request& request);

  // Throws CudaError.
  std::shared_ptr<gpu::Device> device(int ordinal);
  // What `ordinal` and the adapter are known to do together. Trials are among it once memory that
  // is open to adapters was registered.
  PairFacts pair_facts(int ordinal);
  RegionCache::Stats stats() const { return cache_->stats(); }

 private:
  struct Pair {
    std::shared_ptr<gpu::Device> device;
    PairFacts facts;
    std::shared_ptr<gpu::Copier> copier;  // null before the first memory that needs it
  };

  Pair pair(int ordinal);
  Pair tried_pair(const Request& request, const MemoryFacts& memory);
  // Whether the adapter is the software HCA, which copies what nobody wants registered otherwise.
  bool copies(const Request& request) const noexcept;
  Registered find_or_register(const Request& request);
  Registered create(const Pair& pair, const Request& request, const MemoryFacts& memory);
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
  Mutex<Rank::gpu_registrations> mutex_;  // guards all below; never held while a driver works
  std::map<int, Pair> pairs_;
  std::uint64_t misses_since_sweep_ = 0;
};

// The adapter behind the domain, with libmlx5's functions where that may drive it.
Adapter make_adapter(std::shared_ptr<rdma::ProtectionDomain> domain);

}  // namespace zerohop::engine
