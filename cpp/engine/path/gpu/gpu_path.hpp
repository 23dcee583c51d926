// Copies made by GPUs of this process for a Peer on this host: from and to memory of the other
// process that is mapped for them, and page-locked host memory.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <string>

#include "engine/path/gpu/gpu_captures.hpp"
#include "engine/path/gpu/gpu_copies.hpp"
#include "engine/path/gpu/kernel_reach.hpp"
#include "engine/path/gpu/remote_gpus.hpp"
#include "engine/path/local/local_path.hpp"

namespace zerohop::engine {

class GpuPath : public Path {
 public:
  struct Services {
    std::shared_ptr<const PeerState> state;
    std::shared_ptr<Poller> poller;
    std::shared_ptr<PeerRails> rails;
    std::shared_ptr<PendingWork> pending;
    std::shared_ptr<LocalPath> local;
    std::shared_ptr<CallStream> streams;
    std::function<void()> look;  // see GpuCopies
  };
  explicit GpuPath(Services services);

  void meet(std::shared_ptr<RouteBook> book);  // after the local path has met the peer

  // Also what must follow GPU copies or a stream: notifications without data, so that the caller
  // does not wait.
  bool takes(const Call& call) const override;
  bool brief() const noexcept override { return false; }
  TransferPtr begin(const Call& call, std::string& why_not) override;
  std::shared_ptr<const Route> route(const Pair& pair, std::string& why_not) const override;
  bool idle() const override { return s_.pending->gpu_copies <= 0; }
  void end() noexcept override;
  void sweep() override;

  // For a pair with at least one array on a GPU: which GPU copies, and where it finds both.
  using Stream = std::optional<driver::CudaStream>;
  GpuReach reach(const Pair& pair, const Stream& stream, const Neighbour::Patience& patience) const;
  // Lets kernels of this process put, get and notify by themselves, as long as the returned `kept`
  // lives. Throws RouteUnavailable without p2p, CudaError.
  KernelReach reach_for_kernels(const Pair& pair, Hearers hearers, double timeout) const;

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
  // The short way, without lists: one range between GPUs, in a chunk reached before, without a
  // notification. Null: not possible.
  TransferPtr begin_at_once(const Call& call);
  static void add_ranges(Move& move, const Pair& pair, const GpuReach& reached, bool is_write);
  std::string add_pairs(Move& move, const Call& call, GpuReach& reached) const;
  TransferPtr begin_copy(const Call& call, Move&& move, std::shared_ptr<shm::LocalSession> session,
                         const Deadline& until);
  bool notifies_in_stream(const Call& call) const noexcept;
  static bool is_captured(const Move& move, const TransferOptions& options);
  TransferPtr capture(const Call& call, Move&& move, std::shared_ptr<shm::LocalSession> session,
                      const Deadline& until);
  void cut_off() noexcept;
  void let_gpu_put(GpuCopies::Copy& copy, Move& move, NeighbourEnd& after,
                   const Neighbour::Patience& patience);

  const Services s_;
  const std::shared_ptr<GpuCopies> copies_;
  GpuCaptures captures_;
  std::unique_ptr<RemoteGpus> gpus_;  // null: the peer is not on this host
};

}  // namespace zerohop::engine
