// Many copies between addresses that one GPU can access, in as few kernel launches as possible.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "base/deadline.hpp"
#include "gpu/copy_piece.hpp"
#include "gpu/handles.hpp"
#include "gpu/kernels.hpp"
#include "gpu/piece_source.hpp"

namespace zerohop::gpu {

// Not thread-safe. The device must have finished its work before the object is destroyed.
class ListCopier {
 public:
  // Pieces per launch. For pieces of 4 KiB, four launches of 4096 pieces take 2 % longer than one
  // of 16384, sixteen of 1024 take 27 % longer, as the links run empty in between (two H200 over
  // NVLink).
  static constexpr std::uint32_t kPieces = 16384;
  // Launches whose lists the GPU may not have read yet.
  static constexpr std::uint32_t kLists = 4;

  // Pins kLists * kPieces * 24 bytes. Throws CudaError.
  ListCopier(std::shared_ptr<const Device> device, std::shared_ptr<const Kernels> kernels);

  // Enqueues copies of all pieces, which sum to `nbytes`, in any order: targets must not overlap.
  // Blocks, until `deadline`, where more than kLists launches are needed. The tail follows; without
  // bytes it is omitted. The caller has made the device current. Throws TransferTimeout, CudaError;
  // what was enqueued by then still runs.
  void copy(PieceSource& pieces, std::uint64_t nbytes, const Tail& tail, driver::CudaStream stream,
            const Deadline& deadline);

 private:
  struct List {
    CopyPiece* pieces;
    Event read;  // recorded after the last launch that reads the pieces
  };

  List& next_list(const Deadline& deadline);
  void launch(List& list, std::uint32_t count, const Tail& tail, driver::CudaStream stream);

  const std::shared_ptr<const Device> device_;
  const std::shared_ptr<const Kernels> kernels_;
  PinnedPages pages_;
  std::vector<List> lists_;
  std::size_t next_ = 0;
};

}  // namespace zerohop::gpu
