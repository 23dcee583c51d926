// GPU memory of another process of this host, mapped chunk by chunk for GPUs of this one.
#pragma once

#include <array>
#include <cstdint>
#include <map>
#include <memory>
#include <tuple>
#include <utility>
#include <vector>

#include "base/layout.hpp"
#include "base/locks.hpp"
#include "base/short_list.hpp"
#include "engine/memory/pending.hpp"
#include "gpu/peer_link.hpp"
#include "gpu/peer_memory.hpp"
#include "shm/local_session.hpp"

namespace zerohop::engine {

class GpuMappings {
 public:
  // A chunk of an exposure, and its mapping.
  struct Spot {
    std::shared_ptr<const shm::RemoteMapping> mapping;
    std::shared_ptr<const gpu::PeerMemory> memory;
    gpu::PeerLink link;  // to the GPU that holds it
  };
  using Place = std::shared_ptr<const Spot>;
  using Places = ShortList<Place, 2>;

  // The chunks that `extent` of that exposure covers, in order: mapped for `device` at the first
  // use, then remembered. Throws as shm::LocalSession::open() does, and RouteUnavailable if the
  // extent exceeds the exposure, the exposure has ended, or `device` cannot access the memory.
  Places reach(shm::LocalSession& session, std::uint64_t key, const Extent& extent,
               const std::shared_ptr<const gpu::Device>& device, const Deadline& deadline);
  // The same if all of them are remembered; otherwise empty.
  Places known(std::uint64_t key, const Extent& extent, int ordinal) const;

  // The GPU that holds the chunk around `address`. Throws as reach() does.
  static driver::CudaUuid gpu_of(shm::LocalSession& session, std::uint64_t key,
                                 std::uint64_t address, const Deadline& deadline);

  // Unmaps what its owner no longer exposes, as the GPU's memory is not freed while mapped. Call it
  // periodically. Returns how many exposures it looked at: only those that ended.
  std::size_t sweep(const shm::LocalSession& session);
  // The number of chunks mapped now and their bytes, by the GPU of this process.
  struct Mapped {
    std::uint64_t chunks = 0;
    std::uint64_t nbytes = 0;
  };
  std::map<int, Mapped> mapped() const;
  void clear();  // drops everything; copies under way keep what they use

 private:
  using Where = std::tuple<std::uint64_t, int, std::uint64_t>;  // key, ordinal, begin
  using All = std::map<Where, Place>;
  // Exposures share the chunks that hold them: ordinal, GPU, buffer id.
  using Chunk = std::tuple<int, std::array<unsigned char, 16>, std::uint64_t>;

  std::size_t take_ended(const shm::LocalSession& session, std::vector<All::node_type>& ended);
  void forget_unmapped();
  Place find(int ordinal, std::uint64_t key, std::uint64_t address) const;  // null: unknown
  Place open(shm::LocalSession& session, std::uint64_t key, std::uint64_t address,
             const std::shared_ptr<const gpu::Device>& device, const Deadline& deadline);
  // Sets the memory and the link.
  static shm::LocalSession::Opened ask(shm::LocalSession& session, std::uint64_t key,
                                       std::uint64_t address, const Deadline& deadline);
  void map(Spot& spot, const shm::LocalSession& session, const shm::ExportedChunk& exported,
           const std::shared_ptr<const gpu::Device>& device);

  struct Wanted {
    Chunk chunk;
    bool covers(const Wanted& other) const noexcept { return chunk == other.chunk; }
  };

  Pending<Rank::gpu_mappings_mapping, Wanted> mapping_;  // each chunk is mapped once
  mutable Mutex<Rank::gpu_mappings> mutex_;              // guards all below
  All places_;
  std::uint64_t struck_seen_ = 0;
  std::map<Chunk, std::weak_ptr<const gpu::PeerMemory>> mapped_;
  std::size_t next_sweep_ = 64;  // number of entries at which dead ones are removed
};

}  // namespace zerohop::engine
