// The way of payload to and from registered memory that the CPU cannot touch: through the pinned
// chunks of a lane of its Copier. The parts of a vector that stand for such memory lie in chunks,
// and copies run while the socket moves other bytes.
//
// Belongs to a queue pair and is used within one step of it: every step ends with settle(), so
// neither a copy nor a lane nor a pin outlives the time for which QueuePair::lock is held.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>

#include "driver/copier.hpp"
#include "softhca/borrowed.hpp"
#include "softhca/memory_table.hpp"

namespace zerohop::softhca {

class Bounce {
 public:
  enum class Direction { out, in };  // to the socket, from the socket

  Bounce() = default;
  Bounce(const Bounce&) = delete;
  Bounce& operator=(const Bounce&) = delete;

  // A vector is put together.
  void begin(Direction direction) noexcept;

  // Room in a chunk for the first `nbytes` bytes at `place`, which become part `part` of the
  // vector, behind `at` bytes of it; nbytes is lowered to what there is room for. Null when the
  // vector must end here: the chunks are used up, the place needs another lane, or a copy failed.
  // Outwards their copy is started.
  std::byte* reserve(const Place& place, std::size_t& nbytes, std::size_t part,
                     std::size_t at) noexcept;

  // Outwards: waits for the next chunk, and answers up to which of the vector's `parts` it may be
  // sent then. 0 when a copy failed.
  std::size_t ready(std::size_t parts) noexcept;

  // Inwards: the first `nbytes` bytes of the vector have come. Starts the copies of those that lie
  // in chunks, and keeps the pins until they are done.
  void land(std::size_t nbytes, Pins& pins) noexcept;

  // Waits for all copies, then gives pins and lane back. 0, or the first error since the last time.
  int settle() noexcept;
  bool idle() const noexcept { return lane_ == nullptr && error_ == 0; }

 private:
  static constexpr unsigned kChunks = driver::CopyLane::kChunks;

  struct Piece {  // a part that lies in a chunk
    std::byte* host;
    std::uint64_t device;
    std::size_t nbytes;
    std::size_t at;
  };

  bool take_lane(const std::shared_ptr<driver::Copier>& copier) noexcept;
  bool open_room(std::size_t nbytes, std::size_t part) noexcept;
  bool next_chunk() noexcept;
  void mark() noexcept;
  void drain() noexcept;
  bool works(int error) noexcept {
    if (error_ == 0) error_ = error;
    return error == 0;
  }

  Direction direction_ = Direction::out;
  std::shared_ptr<driver::Copier> copier_;  // whose lane it is
  driver::CopyLane* lane_ = nullptr;
  int error_ = 0;
  unsigned chunk_ = 0;                      // the one in use
  std::size_t used_ = 0;                    // bytes of it
  bool started_ = false;                    // copies since the last mark
  unsigned last_ = 0;                       // the chunk marked last
  std::array<bool, kChunks> marked_{};      // copies of that chunk may run
  std::array<std::size_t, kChunks> end_{};  // outwards: the part at which the chunk ends
  unsigned ready_ = 0;                      // outwards: chunks that ready() has waited for
  std::size_t count_ = 0;                   // pieces of the vector
  struct Inwards {
    std::array<Piece, 64> pieces;  // of the vector: the first count_ are set
    Pins pins;                     // of what is copied
  };
  Borrowed<Inwards> inwards_;
};

}  // namespace zerohop::softhca
