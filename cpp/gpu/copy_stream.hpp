// Copies between addresses that one GPU reaches, in the order of a stream: of its own, or of the
// program.
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

// Not thread safe, but for done() and give_back().
class CopyStream {
 public:
  // Throws CudaError.
  explicit CopyStream(std::shared_ptr<const Device> device);
  // What may still run leaves behind what it uses.
  ~CopyStream();
  CopyStream(const CopyStream&) = delete;
  CopyStream& operator=(const CopyStream&) = delete;

  const Device& device() const noexcept { return *device_; }
  driver::CudaStream own() const noexcept { return parts_->stream.get(); }

  // --- the caller has made the device current; all throw CudaError ---
  // From now on its own stream begins once `stream` has done what it was given so far.
  void follow(driver::CudaStream stream);
  // The reverse, where the current device may be another: what is given to a stream from now on
  // begins behind its own.
  void precede(driver::CudaStream stream);

  // A notification: where the GPU reaches a slot for it, and what to put there.
  struct Put {
    driver::CudaAddress slot = 0;      // 0: none
    driver::CudaAddress mirror = 0;    // of the slot, in the memory of a GPU; 0: none
    driver::CudaAddress replaced = 0;  // an earlier notification of that slot; 0: none
    Note note = 0;
  };
  // What is to be copied, in no order: ranges, or a list of pieces that have `nbytes` together.
  struct What {
    std::span<const CopyPiece> ranges;
    PieceSource* pieces = nullptr;
    std::uint64_t nbytes = 0;
  };
  // Puts the copies into the stream, and `put` behind them. Waits, until `deadline`, where lists of
  // earlier ones fill up. Throws CudaError, TransferTimeout; what was put in by then will be done,
  // but for `put`.
  Ticket copy(const What& what, const Put& put, driver::CudaStream stream,
              const Deadline& deadline);

  // Whether the copies of that ticket are placed.
  bool done(const Ticket& ticket) const noexcept { return tickets_->done(ticket); }
  void give_back(const Ticket& ticket) noexcept { tickets_->give_back(ticket); }  // once done
  // What a stream can wait for: the word is ticket.number then, or has passed it.
  driver::CudaAddress word(const Ticket& ticket) const noexcept { return tickets_->word(ticket); }

  // Asks the driver about its own stream: 0, everything is done; kCudaErrorNotReady, it goes on;
  // else what ended it, and everything of this GPU.
  driver::CudaResult query() noexcept;

  // Given in a stream of the program, and not known to have ended: it is kept for good.
  void leave_behind() noexcept { left_behind_ = true; }

 private:
  // What the driver knows: destroyed apart.
  struct Parts {
    std::shared_ptr<const Kernels> kernels;  // null: this build has none
    std::unique_ptr<Tickets> own_tickets;    // where there are no kernels
    Stream stream;
    Event before;
    std::unique_ptr<ListCopier> lists;  // from the first list on
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
