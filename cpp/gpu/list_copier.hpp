// Many copies between addresses that one GPU reaches, by as few kernel launches as possible.
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

// Not thread safe. The device must have done what it was given before the object goes.
class ListCopier {
 public:
  // Pieces in one launch. Four launches of 4096 pieces of 4 KiB take 2 % longer than one of 16384,
  // sixteen of 1024 take 27 %, as the links run empty in between (two H200 over NVLink).
  static constexpr std::uint32_t kPieces = 16384;
  // Launches whose lists the GPU may not have read yet.
  static constexpr std::uint32_t kLists = 4;

  // Pins kLists * kPieces * 24 bytes. Throws CudaError.
  ListCopier(std::shared_ptr<const Device> device, std::shared_ptr<const Kernels> kernels);

  // Puts the copies of all pieces, which have `nbytes` together, into the stream, in no order among
  // them: no two may overlap at their targets. Waits for the GPU, until `deadline`, where more than
  // kLists launches are needed. Then comes the tail; it is left out where there are no bytes.
  // The caller has made the device current. Throws TransferTimeout, CudaError; what was put into
  // the stream by then will be done.
  void copy(PieceSource& pieces, std::uint64_t nbytes, const Tail& tail, driver::CudaStream stream,
            const Deadline& deadline);

 private:
  struct List {
    CopyPiece* pieces;
    Event read;  // recorded behind the last launch that reads them
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
