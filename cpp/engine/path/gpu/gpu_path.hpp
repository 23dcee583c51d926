// Copies made by GPUs of this process for a Peer on this host: from and to memory of the other
// process that is mapped for them, and page-locked host memory.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <string>

#include "engine/path/gpu/gpu_copies.hpp"
#include "engine/path/gpu/kernel_reach.hpp"
#include "engine/path/gpu/remote_gpus.hpp"
#include "engine/path/local/local_path.hpp"

namespace zerohop::engine {

// Any thread. For its exceptions see DevicePath.
class GpuPath {
 public:
  GpuPath(std::shared_ptr<const PeerState> state, std::shared_ptr<Poller> poller,
          std::shared_ptr<StagedPath> staged, std::shared_ptr<LocalPath> local,
          std::shared_ptr<GpuCopies> copies, std::shared_ptr<CallStream> streams)
      : state_(std::move(state)),
        poller_(std::move(poller)),
        staged_(std::move(staged)),
        local_(std::move(local)),
        copies_(std::move(copies)),
        streams_(std::move(streams)) {}

  void meet(std::shared_ptr<RouteBook> book);  // after the local path has met the peer

  // Null, with the reason, if a device must move it.
  Transferring copy(ibv_wr_opcode opcode, std::span<const Pair> pairs,
                    const TransferOptions& options, std::string& reason);
  Transferring copy_pages(ibv_wr_opcode opcode, const Pages& pages, const TransferOptions& options,
                          std::string& reason);
  // The short way, without lists: one range between GPUs, in a chunk reached before, without a
  // notification. Null: not possible.
  Transferring copy_at_once(ibv_wr_opcode opcode, const Pair& pair, const TransferOptions& options);
  bool pending() const noexcept { return copies_->pending(); }

  // For a pair with at least one array on a GPU: which GPU copies, and where it finds both.
  using Stream = std::optional<driver::CudaStream>;
  GpuReach reach(const Pair& pair, const Stream& stream, const Neighbour::Patience& patience) const;
  // Lets kernels of this process put, get and notify by themselves, as long as the returned `kept`
  // lives. Throws RouteUnavailable without p2p, CudaError.
  KernelReach reach_for_kernels(const Pair& pair, Hearers hearers, double timeout) const;

  std::size_t sweep() { return gpus_ ? gpus_->sweep() : 0; }
  void leave() noexcept;
  std::map<int, GpuMappings::Mapped> mapped() const;

 private:
  struct Move {
    std::shared_ptr<const gpu::Device> device;
    ShortList<gpu::CopyPiece, gpu::FewRanges::kMost> ranges;
    gpu::PieceSource* pieces = nullptr;  // instead: a list
    GpuCopies::Kept kept;
    std::uint64_t nbytes = 0;
    std::shared_ptr<const Route> route;
  };
  static void reach_local(GpuReach& reached, const Memory& local,
                          const Neighbour::Patience& patience);
  static std::string hold(Move& move, const GpuReach& reached, bool is_write);
  static std::string take_device(Move& move, const std::shared_ptr<const gpu::Device>& device);
  Transferring begin(ibv_wr_opcode opcode, Move&& move, std::shared_ptr<shm::LocalSession> session,
                     const TransferOptions& options, std::string& reason);
  Transferring begin_copy(ibv_wr_opcode opcode, Move&& move,
                          std::shared_ptr<shm::LocalSession> session,
                          const TransferOptions& options, const Deadline& until);
  void let_gpu_put(GpuCopies::Copy& copy, Move& move, NeighbourEnd& after,
                   const Neighbour::Patience& patience);

  const std::shared_ptr<const PeerState> state_;
  const std::shared_ptr<Poller> poller_;
  const std::shared_ptr<StagedPath> staged_;
  const std::shared_ptr<LocalPath> local_;
  const std::shared_ptr<GpuCopies> copies_;
  const std::shared_ptr<CallStream> streams_;
  std::unique_ptr<RemoteGpus> gpus_;  // null: the peer is not on this host
};

}  // namespace zerohop::engine
