// What stands between a queue pair with faults and its connection. Frames are copied here, a packet
// in each, numbered and sealed (checked_frame.hpp); what the Dice say happens to them then. A
// packet that is lost or damaged is sent again after the queue pair's ack timeout, as often as its
// retry_cnt says, while everything behind it waits: for the queue pair, and for its peer, that is
// what go-back-N over a network that loses packets looks like.
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

  void change(const Faults& faults) noexcept;  // for packets from the next one on
  void reset() noexcept;                       // the connection has ended

  // Copies the parts [first, end) of a frame to the end of the packet; how many bytes.
  ssize_t take(IoVector& parts, std::size_t first, std::size_t end) noexcept;
  void seal() noexcept;  // the packet is complete

  enum class Sent : std::uint8_t { all, blocked, held, failed };  // held: on_time() goes on
  Sent send() noexcept;
  bool holds() const noexcept { return sealed_; }  // a packet that has not left for good

  // Whether what has come may be read now; after that was done, not for a while.
  bool may_read() const noexcept { return reads_at_ == Clock::time_point{}; }
  void has_read() noexcept;
  void read_now() noexcept;  // however long it was to wait
  // Whether the request is to find no receive, though there is one.
  bool finds_no_receive(std::uint32_t request) noexcept;
  // Of the next request that is posted: how it is to fail, or IBV_WC_SUCCESS.
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
  std::span<std::byte> leaving_{};  // what is left of it to send
  std::uint32_t next_number_ = 0;   // of checked frames on this connection

  Dice::Throw named_{};           // the packet: what its fate depends on
  Fate fate_ = Fate::arrives;     // of this try; with `ends` the connection does
  std::size_t bit_ = 0;           // the wrong one of a damaged packet
  Clock::time_point due_{};       // when the packet may leave; 0: now
  Clock::time_point reads_at_{};  // when may_read() again; 0: now

  std::uint64_t posted_ = 0;        // requests
  std::uint32_t not_ready_at_ = 0;  // the request that found no receive last
  std::uint32_t not_ready_tries_ = 0;
};

}  // namespace zerohop::softhca
