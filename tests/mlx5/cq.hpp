// The completion queue of a program: a ring that libmlx5 has laid out and reads.
#pragma once

#include <infiniband/mlx5dv.h>
#include <infiniband/verbs.h>

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>

#include "event_file.hpp"
#include "queue_memory.hpp"

namespace zerohop::mlx5sim {

// As libmlx5 gives them when it makes or resizes one.
struct CqRing {
  QueueMemory memory;
  std::uint32_t count = 0;         // entries, a power of two
  std::uint32_t entry_nbytes = 0;  // 64 or 128; what is written are the last 64 of them
  bool collapsed = false;          // all into the first entry, whether or not it was read
};

class Cq {
 public:
  Cq(CqRing ring, QueueMemory record, std::uint64_t user_handle,
     std::shared_ptr<EventFile> channel) noexcept;
  Cq(const Cq&) = delete;
  Cq& operator=(const Cq&) = delete;

  static constexpr std::size_t kMostData = 64;
  // Of a message, in a completion.
  std::size_t room_for_data() const noexcept { return ring_.entry_nbytes / 2; }

  // The completion of the entry `counter` of a queue of the queue pair that the program knows as
  // `user_index`. False if the program has not taken what is in the next place, an overrun, or a
  // GPU has failed.
  // `data`: the whole of a short message, if it arrives so.
  bool push(const ibv_wc& completion, std::uint16_t counter, std::uint32_t user_index,
            std::span<const std::byte> data = {});
  // Looks whether the program armed it.
  void look();
  // Continues in `ring`, after an entry that says so in the old one. False: that is full, or this
  // too small for what is in it.
  bool resize(const CqRing& ring);

  std::uint32_t unread_events() const noexcept;
  std::uint64_t user_handle() const noexcept { return user_handle_; }
  // Withdraws what was not read from the channel; returns how many events were read.
  std::uint32_t retire() noexcept;

  EventSource async;        // events of the device that name this queue
  bool overrun = false;     // for good
  std::uint32_t users = 0;  // queue pairs

 private:
  enum class Armed { no, solicited, any };
  std::uint32_t unread() const noexcept;
  bool write(std::span<const std::byte> entry) noexcept;  // into the next place, at its end
  void fire();

  CqRing ring_;
  const QueueMemory record_;  // consumer index, and arming
  std::uint64_t user_handle_;
  std::shared_ptr<EventFile> channel_;
  EventSource events_;
  std::uint32_t producer_ = 0;   // counts up without bound
  std::uint32_t solicited_ = 0;  // producer_ behind the last solicited one
  std::uint32_t seen_arming_;
  Armed armed_ = Armed::no;
};

}  // namespace zerohop::mlx5sim
