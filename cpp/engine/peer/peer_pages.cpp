// What a Peer moves as a list of pages: by itself straight from the indices, by devices as pairs.
#include <utility>

#include "base/error.hpp"
#include "engine/path/gpu/gpu_ranges.hpp"
#include "engine/peer/peer.hpp"

namespace zerohop::engine {
namespace {

// Of pages that a GPU copies.
class PageSource : public gpu::PieceSource {
 public:
  PageSource(const Pages& pages, const GpuReach& reached, bool is_write)
      : runs_(pages), ranges_(reached.local.span(), reached.remote.span(), is_write) {
    advance();
  }
  std::uint32_t fill(gpu::CopyPiece* into, std::uint32_t room, std::uint64_t most) override {
    std::uint32_t count = 0;
    for (; count < room && run_.nbytes > 0; advance()) into[count++] = ranges_.cut(run_, most);
    return count;
  }
  bool more() const noexcept override { return run_.nbytes > 0; }

 private:
  void advance() {
    if (run_.nbytes == 0 && !runs_.next(run_)) run_ = {};
  }

  PageRuns runs_;
  GpuRanges ranges_;
  Run run_{};  // what is left of it
};

}  // namespace

Peer::Transferring Peer::write_pages(const Pages& pages, const TransferOptions& options) {
  return transfer_pages(IBV_WR_RDMA_WRITE, pages, options);
}

Peer::Transferring Peer::read_pages(const Pages& pages, const TransferOptions& options) {
  return transfer_pages(IBV_WR_RDMA_READ, pages, options);
}

Peer::Transferring Peer::transfer_pages(ibv_wr_opcode opcode, const Pages& pages,
                                        const TransferOptions& options) {
  check_call(options);
  const bool is_write = opcode == IBV_WR_RDMA_WRITE;
  check_rights({pages.local, pages.remote}, is_write ? kRemoteWrite : kRemoteRead);
  pages.check(is_write);
  if (pages.nbytes() == 0) return is_write ? write({}, options) : read({}, options);
  if (!checks(options)) return move_pages(opcode, pages, options);
  return move_and_check(
      opcode, PagePairs(pages).pairs, options,
      [&](const TransferOptions& moving) { return move_pages(opcode, pages, moving); });
}

Peer::Transferring Peer::move_pages(ibv_wr_opcode opcode, const Pages& pages,
                                    const TransferOptions& options) {
  if (options.may_be_p2p()) {
    std::string reason;
    if (auto copying = copy_pages_as_neighbour(opcode, pages, options, reason)) return copying;
    check_not_insisted(options, reason);
  }
  return transfer_by_devices(opcode, PagePairs(pages).pairs, options);
}

// Null, with the reason, where a device has to.
Peer::Transferring Peer::copy_pages_as_neighbour(ibv_wr_opcode opcode, const Pages& pages,
                                                 const TransferOptions& options,
                                                 std::string& reason) {
  const Pair whole{pages.local, pages.remote};
  if (touch_gpus({&whole, 1})) return copy_pages_by_gpu(opcode, pages, options, reason);
  if (!neighbour_) return reason = why_no_neighbour(), nullptr;
  wait_for_stream(options, deadline(options.timeout));
  const bool is_write = opcode == IBV_WR_RDMA_WRITE;
  Neighbour::Reached reached = reach_as_neighbour(whole, patience_of(options));
  if (reached.window && is_write && !reached.window->writable) {
    reached.reason = "it is to be read only";
  }
  if (!reached.reason.empty()) return reason = std::move(reached.reason), nullptr;
  NeighbourCopy copy;
  copy.direction = is_write ? ipc::Direction::write : ipc::Direction::read;
  copy.nbytes = pages.nbytes();
  copy.pieces.push_back({.local = pages.local->layout(),
                         .remote = pages.remote->layout,
                         .window = std::move(reached.window),
                         .owner = pages.local->pinned()});
  std::vector<Run>& runs = copy.pieces.back().runs;
  runs.reserve(pages.count());
  PageRuns all(pages);
  for (Run run{}; all.next(run);) runs.push_back(run);
  return begin_neighbour_copy(opcode, std::move(copy), std::move(reached), options, reason);
}

// The same by a GPU.
Peer::Transferring Peer::copy_pages_by_gpu(ibv_wr_opcode opcode, const Pages& pages,
                                           const TransferOptions& options, std::string& reason) {
  const Pair whole{pages.local, pages.remote};
  if (!neighbour_) return reason = why_no_neighbour(), nullptr;
  const bool is_write = opcode == IBV_WR_RDMA_WRITE;
  auto pinned = pages.local->pinned();
  auto reached = reach_by_gpu(whole, options.stream, patience_of(options));
  if (!reached.reason.empty()) return reason = std::move(reached.reason), nullptr;
  GpuMove move;
  move.device = reached.device;
  move.nbytes = pages.nbytes();
  move.route = reached.route;
  reason = hold(move, reached, is_write);
  if (!reason.empty()) return nullptr;
  move.kept.others.push_back(std::move(pinned));
  PageSource source(pages, reached, is_write);
  move.pieces = &source;
  return begin_gpu_move(opcode, std::move(move), std::move(reached.visit), options, reason);
}

}  // namespace zerohop::engine
