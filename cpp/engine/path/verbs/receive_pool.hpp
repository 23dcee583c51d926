// The buffers for incoming messages of one rail, for all Peers: a shared receive queue. Its memory
// grows with the first Peers, up to kMost messages. If Peers send more at a time than there are
// buffers, the device delays them (RNR NAK) until messages are taken. On iWARP a message without a
// buffer ends the connection, so there each Peer has its own share.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "engine/path/verbs/message_buffers.hpp"
#include "engine/rail.hpp"
#include "engine/wait/poller.hpp"
#include "rdma/shared_receive_queue.hpp"

namespace zerohop::engine {

class ReceivePool final : public CompletionSink {
 public:
  static constexpr std::uint32_t kMost = 512;            // messages, unless one Peer may send more
  static constexpr std::uint32_t kMostUnshared = 16384;  // ... where each Peer has its share

  // Also reserves room in the completion queue of that rail. Throws VerbsError.
  static std::shared_ptr<ReceivePool> create(const Rail& rail, const MessageWindow& window,
                                             Poller& poller);

  static bool is_receive(const ibv_wc& completion) noexcept {
    return (completion.wr_id & kReceiveBit) != 0;
  }

  // For a queue pair that receives here, as long as it keeps the returned pointer. The first calls
  // allocate memory: throws RegistrationError. VerbsError: all shares are given.
  static std::shared_ptr<ReceivePool> join(const std::shared_ptr<ReceivePool>& pool);

  const std::shared_ptr<rdma::SharedReceiveQueue>& queue() const noexcept { return queue_; }
  // The received message, valid until post().
  std::span<const std::byte> message(const ibv_wc& completion) const noexcept {
    return buffer(completion.wr_id).first(completion.byte_len);
  }
  void post(std::uint64_t wr_id) noexcept;  // posts the buffer of that completion again
  // For a queue pair that is gone: posts the buffer again.
  void on_completion(const ibv_wc& completion) noexcept override;

  // Of an iWARP device: the byte that peers read.
  rdma::ManagedEnd word() const noexcept;

  std::size_t nbytes() const noexcept { return nbytes_.load(std::memory_order_relaxed); }
  // Once the Endpoint and its queue pairs are closed: releases the device.
  void release() noexcept;

 private:
  static constexpr std::uint64_t kReceiveBit = std::uint64_t{1} << 63;  // in wr_id

  ReceivePool(const Rail& rail, const MessageWindow& window, std::uint32_t most);
  void add_block(std::uint32_t index);
  std::span<std::byte> buffer(std::uint64_t wr_id) const noexcept;

  // For one queue pair: as many messages as its peer may have in flight.
  struct Block {
    std::atomic<bool> there{false};
    std::unique_ptr<MessageBuffers> buffers;
  };

  const MessageWindow window_;
  const std::uint32_t blocks_count_;
  std::shared_ptr<rdma::ProtectionDomain> domain_;
  std::shared_ptr<rdma::SharedReceiveQueue> queue_;
  std::atomic<std::uint32_t> joined_{0};
  std::atomic<std::size_t> nbytes_{0};
  std::unique_ptr<Block[]> blocks_;
  std::unique_ptr<std::byte> word_;
  std::shared_ptr<rdma::MemoryRegion> word_region_;
};

using ReceivePools = std::vector<std::shared_ptr<ReceivePool>>;  // by rail

}  // namespace zerohop::engine
