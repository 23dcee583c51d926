// A reliable-connected (RC) queue pair with a completion queue of its own, whose rings lie in
// memory of the program's choice: made by commands of DEVX. It only sends: it takes no receives,
// and nothing of it may be accessed from afar. Not verified on hardware.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "rdma/devx.hpp"
#include "rdma/protection_domain.hpp"
#include "rdma/ring_pair.hpp"

namespace zerohop::rdma {

// A ring and its doorbell record, which the caller has laid out.
struct DevxRing {
  static constexpr std::size_t kRecordNbytes = 64;  // of the place for a record, at the end

  // Whole pages for that many entries of 64 bytes and the record.
  static std::size_t nbytes_of(std::uint32_t count) noexcept;

  std::vector<UmemRange> ranges{};  // of the same memory, as Devx::reg_umem takes them
  std::byte* at = nullptr;          // its address for who uses the ring: of the host or of a GPU
  std::uint32_t count = 0;          // a power of two

  std::size_t record_at() const noexcept { return ranges.front().nbytes - kRecordNbytes; }
};

class DevxQueuePair final : public RingPair {
 public:
  // The entries of `completions` are invalid: each has kInvalidEntry in its last byte. Throws
  // VerbsError.
  static constexpr std::uint8_t kInvalidEntry = MLX5_CQE_INVALID << 4 | MLX5_CQE_OWNER_MASK;
  DevxQueuePair(std::shared_ptr<ProtectionDomain> domain,
                std::shared_ptr<const driver::Mlx5dv> mlx5dv, const DevxRing& sends,
                const DevxRing& completions, const QueuePairOptions& options);

  QueuePairAddress address() const override;
  std::uint32_t number() const noexcept override { return number_; }
  ibv_qp_state state() const override;
  void connect(const QueuePairAddress& remote) override;
  const mlx5dv_qp& sends() const noexcept override { return shown_sends_; }
  const mlx5dv_cq& completions() const noexcept override { return shown_completions_; }

 private:
  void make_completion_queue(const DevxRing& ring);
  void make_queue_pair(const DevxRing& ring);
  void to_init();
  void to_ready_to_receive(const QueuePairAddress& remote);
  void to_ready_to_send(const QueuePairAddress& remote);
  void set_path(mlx5::Command& command, const QueuePairAddress& remote) const;

  const std::shared_ptr<ProtectionDomain> domain_;
  const Devx devx_;
  const QueuePairOptions options_;
  const std::uint32_t psn_;
  const Devx::Uar uar_;  // these outlive what uses them
  const Devx::Umem send_memory_;
  const Devx::Umem completion_memory_;
  Devx::Object completion_queue_{};
  Devx::Object queue_pair_{};
  std::uint32_t completion_queue_number_ = 0;
  std::uint32_t number_ = 0;
  mlx5dv_qp shown_sends_{};
  mlx5dv_cq shown_completions_{};
};

}  // namespace zerohop::rdma
