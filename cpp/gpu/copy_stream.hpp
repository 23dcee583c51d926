// Copies between addresses that one GPU can access, in stream order: in its own stream or one of
// the program.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <span>

#include "base/deadline.hpp"
#include "gpu/copy_piece.hpp"
#include "gpu/handles.hpp"
#include "gpu/list_copier.hpp"
#include "gpu/tickets.hpp"

namespace zerohop::gpu {

// Not thread-safe, except done() and give_back().
class CopyStream {
 public:
  // Throws CudaError.
  explicit CopyStream(std::shared_ptr<const Device> device);
  // Leaks what may still be in use.
  ~CopyStream();
  CopyStream(const CopyStream&) = delete;
  CopyStream& operator=(const CopyStream&) = delete;

  const Device& device() const noexcept { return *device_; }
  driver::CudaStream own() const noexcept { return parts_->stream.get(); }

  // --- the caller has made the device current; all throw CudaError ---
  // Makes its own stream wait for the work submitted to `stream` so far.
  void follow(driver::CudaStream stream);
  // The reverse; the current device may be another: work submitted to `stream` from now on waits
  // for its own stream.
  void precede(driver::CudaStream stream);

  // A notification: the slot's addresses as the GPU sees them, and the value to write.
  struct Put {
    driver::CudaAddress slot = 0;      // 0: none
    driver::CudaAddress mirror = 0;    // the slot's mirror in GPU memory; 0: none
    driver::CudaAddress replaced = 0;  // an earlier one in that slot, to be cleared; 0: none
    Note note = 0;
  };
  // What to copy, in any order: ranges, or a list of pieces that sum to `nbytes`.
  struct What {
    std::span<const CopyPiece> ranges;
    PieceSource* pieces = nullptr;
    std::uint64_t nbytes = 0;
  };
  // Enqueues the copies, then `put`. Blocks, until `deadline`, while the lists of earlier calls are
  // full. Throws CudaError, TransferTimeout; what was enqueued by then still runs, but `put` does
  // not.
  Ticket copy(const What& what, const Put& put, driver::CudaStream stream,
              const Deadline& deadline);

  // Whether the ticket's copies are complete.
  bool done(const Ticket& ticket) const noexcept { return tickets_->done(ticket); }
  void give_back(const Ticket& ticket) noexcept { tickets_->give_back(ticket); }  // once done
  // A word for streams to wait on: it reaches ticket.number, or passes it.
  driver::CudaAddress word(const Ticket& ticket) const noexcept { return tickets_->word(ticket); }

  // State of its own stream: 0 when idle; kCudaErrorNotReady while work runs; else the error that
  // stopped it, and all work of this GPU.
  driver::CudaResult query() noexcept;

  // For work in a program's stream that is not known to have finished: leak its resources.
  void leave_behind() noexcept { left_behind_ = true; }

 private:
  // Driver objects, destroyed on another thread.
  struct Parts {
    std::shared_ptr<const Kernels> kernels;  // null: built without kernels
    std::unique_ptr<Tickets> own_tickets;    // used without kernels
    Stream stream;
    Event before;
    std::unique_ptr<ListCopier> lists;  // created with the first list
  };
  void put_in(const What& what, const Tail& tail, driver::CudaStream stream,
              const Deadline& deadline);
  void put_in_ranges(std::span<const CopyPiece> ranges, const Tail& tail, driver::CudaStream stream,
                     const Deadline& deadline);
  void put_in_list(PieceSource& pieces, std::uint64_t nbytes, const Tail& tail,
                   driver::CudaStream stream, const Deadline& deadline);
  void copy_by_engine(PieceSource& pieces, const Tail& tail, driver::CudaStream stream) const;
  void record(driver::CudaStream stream);
  void wait(driver::CudaStream stream);

  const std::shared_ptr<const Device> device_;
  const unsigned generation_;  // of the process (fork)
  std::unique_ptr<Parts> parts_ = std::make_unique<Parts>();
  Tickets* tickets_ = nullptr;
  bool left_behind_ = false;
};

}  // namespace zerohop::gpu
