// Gathers many small pieces of GPU memory into contiguous pinned host memory with a kernel:
// separate copies would take microseconds each.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>

#include "base/deadline.hpp"
#include "gpu/handles.hpp"
#include "gpu/list_copier.hpp"

namespace zerohop::gpu {

// Not thread-safe.
class Gatherer {
 public:
  // Pins `nbytes`, and what ListCopier pins. Throws CudaError, RouteUnavailable (built without
  // kernels).
  Gatherer(std::shared_ptr<const Device> device, std::size_t nbytes);
  ~Gatherer();
  Gatherer(const Gatherer&) = delete;
  Gatherer& operator=(const Gatherer&) = delete;

  std::byte* data() const noexcept { return static_cast<std::byte*>(parts_->pages.get()); }
  std::size_t nbytes() const noexcept { return nbytes_; }

  // Copies the pieces, which sum to `nbytes`, to data(), and waits. Throws CudaError,
  // TransferTimeout: the copies may then still run, before those of the next call.
  void gather(PieceSource& pieces, std::uint64_t nbytes, const Deadline& deadline);

 private:
  // Driver objects, destroyed on another thread.
  struct Parts {
    PinnedPages pages;
    Stream stream;
    std::unique_ptr<ListCopier> lists;
  };

  const std::shared_ptr<const Device> device_;
  const std::size_t nbytes_;
  const unsigned generation_;  // of the process (fork)
  std::unique_ptr<Parts> parts_ = std::make_unique<Parts>();
  bool at_work_ = false;  // the GPU may still write to the pages
};

}  // namespace zerohop::gpu
