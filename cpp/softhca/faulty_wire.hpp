// The stage between a queue pair with faults and its connection. Frames are copied here, one packet
// each, numbered and sealed (checked_frame.hpp); then the Dice decide their fate. A lost or damaged
// packet is resent after the queue pair's ack timeout, at most retry_cnt times, while everything
// behind it waits. To the queue pair and its peer this looks like go-back-N over a lossy network.
//
// All of it is guarded by QueuePair::lock.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>

#include "softhca/checked_frame.hpp"
#include "softhca/faults.hpp"
#include "softhca/scatter.hpp"
#include "softhca/timers.hpp"
#include "softhca/wire.hpp"

namespace zerohop::softhca {

class DeviceFaults;
class QueuePair;

class FaultyWire final : public Timed {
 public:
  // Throws std::bad_alloc.
  FaultyWire(QueuePair& qp, DeviceFaults& device, const Faults& faults);
  ~FaultyWire();
  FaultyWire(const FaultyWire&) = delete;
  FaultyWire& operator=(const FaultyWire&) = delete;

  void change(const Faults& faults) noexcept;  // from the next packet on
  void reset() noexcept;                       // the connection has ended

  // Copies the parts [first, end) of a frame to the end of the packet; returns the number of bytes.
  ssize_t take(IoVector& parts, std::size_t first, std::size_t end) noexcept;
  void seal() noexcept;  // the packet is complete

  enum class Sent : std::uint8_t { all, blocked, held, failed };  // held: on_time() continues
  Sent send() noexcept;
  bool holds() const noexcept { return sealed_; }  // a packet not finally sent

  // Whether received bytes may be read now; after reading, not for a while.
  bool may_read() const noexcept { return reads_at_ == Clock::time_point{}; }
  void has_read() noexcept;
  void read_now() noexcept;  // despite any remaining pause
  // Whether the request must find no receive, although there is one.
  bool finds_no_receive(std::uint32_t request) noexcept;
  // For the next posted request: the status to fail with, or IBV_WC_SUCCESS.
  ibv_wc_status posted() noexcept;

  void on_time() noexcept override;

 private:
  static constexpr std::size_t kMost = wire::kMaxControl + wire::kCheckedPayload;

  enum class Fate : std::uint8_t { arrives, repeated, damaged, lost, ends };

  void name() noexcept;
  void begin_try(Clock::duration after) noexcept;
  bool try_again() noexcept;
  Dice::Throw asked(std::uint8_t what) const noexcept;
  bool hits(Fault fault, double rate) noexcept;
  void shorten() noexcept;
  void alter() noexcept;
  void choose_bit() noexcept;
  void flip_bit() noexcept;
  Sent push() noexcept;
  bool finish() noexcept;
  void wake_at(Clock::time_point& which, Clock::duration after) noexcept;
  void program() noexcept;
  void happened(Fault fault) noexcept;

  QueuePair& qp_;
  DeviceFaults& device_;
  Faults faults_;
  Dice dice_;
  const std::unique_ptr<std::byte[]> packet_;
  std::size_t nbytes_ = 0;  // of packet_
  bool sealed_ = false;
  std::span<std::byte> leaving_{};  // the unsent rest of it
  std::uint32_t next_number_ = 0;   // of checked frames on this connection

  Dice::Throw named_{};           // the packet; its fate depends on this
  Fate fate_ = Fate::arrives;     // of this try; with `ends` the connection ends
  std::size_t bit_ = 0;           // the wrong one of a damaged packet
  Clock::time_point due_{};       // when the packet may leave; 0: now
  Clock::time_point reads_at_{};  // when may_read() again; 0: now

  std::uint64_t posted_ = 0;        // requests
  std::uint32_t not_ready_at_ = 0;  // the request that found no receive last
  std::uint32_t not_ready_tries_ = 0;
};

}  // namespace zerohop::softhca
