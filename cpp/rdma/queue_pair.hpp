// A reliable-connected (RC) queue pair, from RESET to RTS and back.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>

#include "rdma/completion_queue.hpp"
#include "rdma/protection_domain.hpp"
#include "rdma/shared_receive_queue.hpp"

namespace zerohop::rdma {

// Of a queue pair that a connection manager connects (iWARP); zeros for others.
struct ManagedEnd {
  std::uint16_t port = 0;  // rdma_cm listens there, at the address in `gid`
  std::uint32_t word_key =
      0;                   // of a byte that the peer may read, to learn that what it sent before
  std::uint64_t word = 0;  // has arrived
};

// What the other side needs to connect: a plain value sent over the wire.
struct QueuePairAddress {
  std::uint32_t number = 0;  // 24 bits
  std::uint32_t psn = 0;     // first packet sequence number that this side sends, 24 bits
  ibv_gid gid{};
  std::uint16_t lid = 0;            // 0 on RoCE and on the software HCA
  std::uint8_t mtu = IBV_MTU_1024;  // ibv_mtu
  std::uint8_t reads_in = 1;   // reads and atomics this side serves at once (max_dest_rd_atomic)
  std::uint8_t reads_out = 1;  // ... and has outstanding at most (max_rd_atomic)
  ManagedEnd managed{};
};

struct QueuePairOptions {
  std::uint32_t send_depth = 256;    // work requests
  std::uint32_t receive_depth = 64;  // work requests
  std::uint32_t send_sge = 16;       // scatter/gather elements per send, clipped to the device
  std::uint32_t receive_sge = 1;
  std::uint32_t inline_bytes = 64;  // minimum that IBV_SEND_INLINE must support
  std::uint8_t timeout = 14;        // local ACK timeout: 4.096 us * 2^timeout = 67 ms
  std::uint8_t retries = 7;         // retry_cnt
  std::uint8_t rnr_retries =
      7;  // 7 = forever: RNR holds senders back when a shared receive queue is empty
  std::uint8_t rnr_timer = 12;  // min_rnr_timer: 12 = 0.64 ms
  std::uint8_t service_level = 0;
  std::uint8_t traffic_class = 0;  // RoCE: the IP header's type of service
  std::uint8_t hop_limit = 255;
  std::uint8_t mtu = IBV_MTU_4096;  // ibv_mtu, at most; the ports of both ends may lower it
  std::uint8_t rd_atomic = 255;     // outstanding reads and atomics; the devices may lower it
  std::uint16_t pkey_index = 0;     // partition, in the port's table
};

// What two ends agree on: the minimum of both.
struct Agreement {
  std::uint8_t mtu;        // ibv_mtu
  std::uint8_t reads_in;   // max_dest_rd_atomic of the local end
  std::uint8_t reads_out;  // max_rd_atomic of the local end
};
Agreement agree(const QueuePairAddress& local, const QueuePairAddress& remote) noexcept;
// What the other side needs to know of a queue pair of this device.
QueuePairAddress address_of(const Device& device, const QueuePairOptions& options,
                            std::uint32_t number, std::uint32_t psn);
std::uint32_t random_psn();
// As rdma_cm finds it.
struct Path {
  ibv_ah_attr attributes{};
  std::uint8_t mtu = IBV_MTU_4096;  // ibv_mtu, at most
};
// The path to the remote side. RoCE and the software HCA route by GID, and so does InfiniBand to a
// port of another subnet or without a LID, or if the port requires it.
ibv_ah_attr path_to(const Device& device, const QueuePairOptions& options,
                    const QueuePairAddress& remote);

class QueuePair {
 public:
  // Throws VerbsError that names the option the device refuses. The completion queues may be the
  // same object. `shared` replaces receive_depth and receive_sge.
  static std::unique_ptr<QueuePair> create(std::shared_ptr<ProtectionDomain> domain,
                                           std::shared_ptr<CompletionQueue> send_queue,
                                           std::shared_ptr<CompletionQueue> receive_queue,
                                           const QueuePairOptions& options = {},
                                           std::shared_ptr<SharedReceiveQueue> shared = nullptr);

  // One function per transition. Each throws VerbsError if the state or an attribute is refused.
  // remote_access: IBV_ACCESS_REMOTE_* bits; by default all that the device supports.
  void to_init(std::optional<int> remote_access = std::nullopt);
  // path: instead of path_to().
  void to_ready_to_receive(const QueuePairAddress& remote,
                           const std::optional<Path>& path = std::nullopt);
  void to_ready_to_send(const QueuePairAddress& remote);
  void to_error();
  void to_reset();
  // INIT -> RTR -> RTS; not on an iWARP device.
  void connect(const QueuePairAddress& remote, const std::optional<Path>& path = std::nullopt);

  QueuePairAddress address() const;  // fixed at creation; its psn is random
  std::uint32_t number() const noexcept { return handle_->qp_num; }
  ibv_qp_state state() const;  // queried from the device (ibv_query_qp)
  const QueuePairOptions& options() const noexcept { return options_; }  // as granted by the device
  Device& device() const noexcept { return domain_->device(); }
  ibv_qp* handle() const noexcept { return handle_.get(); }

  // One doorbell for the chain. Returns 0 or errno (ENOMEM: queue full); *bad is the first request
  // not posted.
  [[nodiscard]] int post_send(ibv_send_wr& chain, ibv_send_wr** bad) noexcept {
    return ibv_post_send(handle_.get(), &chain, bad);
  }
  [[nodiscard]] int post_receive(ibv_recv_wr& chain, ibv_recv_wr** bad) noexcept {
    return ibv_post_recv(handle_.get(), &chain, bad);
  }

 private:
  struct Destroy : Maker {
    void operator()(ibv_qp* qp) const noexcept;
  };
  using Handle = std::unique_ptr<ibv_qp, Destroy>;
  QueuePair(std::shared_ptr<ProtectionDomain> domain, std::shared_ptr<CompletionQueue> send_queue,
            std::shared_ptr<CompletionQueue> receive_queue,
            std::shared_ptr<SharedReceiveQueue> shared, Handle handle, QueuePairOptions options);

  std::shared_ptr<ProtectionDomain> domain_;
  std::shared_ptr<CompletionQueue> send_queue_;
  std::shared_ptr<CompletionQueue> receive_queue_;
  std::shared_ptr<SharedReceiveQueue> shared_;  // null: uses its own receives
  Handle handle_;
  QueuePairOptions options_;
  std::uint32_t psn_;
};

// Cause and remedy of a work completion status in one sentence, for VerbsError and logs.
const char* completion_status_help(ibv_wc_status status) noexcept;
const char* completion_status_name(ibv_wc_status status) noexcept;  // "IBV_WC_REM_ACCESS_ERR"

const char* state_name(ibv_qp_state state) noexcept;  // "RESET", "INIT", "RTR", "RTS", ...

}  // namespace zerohop::rdma
