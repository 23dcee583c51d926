#include "srq.hpp"

#include <endian.h>
#include <infiniband/mlx5dv.h>

#include <cstring>

#include "softhca/shared_receive_queue.hpp"

namespace zerohop::mlx5sim {

void Receive::read(const QueueMemory& memory, std::size_t offset, std::size_t most) {
  work.sg_list = elements;
  work.num_sge = 0;
  work.next = nullptr;
  for (std::size_t i = 0; i < most && i < kMostElements; ++i) {
    mlx5_wqe_data_seg segment;
    const auto bytes = std::as_writable_bytes(std::span(&segment, 1));
    if (!memory.read(offset + i * sizeof segment, bytes)) break;
    if (be32toh(segment.lkey) == MLX5_INVALID_LKEY) break;
    elements[work.num_sge++] = {be64toh(segment.addr), be32toh(segment.byte_count),
                                be32toh(segment.lkey)};
  }
}

bool Srq::take() {
  const std::lock_guard guard(mutex_);
  const auto posted = static_cast<std::uint16_t>(record_.word(0).value_or(taken_));
  if (posted == taken_) return false;
  Receive receive;
  while (taken_ != posted) {
    mlx5_wqe_srq_next_seg link;
    if (!entries_.read(next_ * entry_nbytes_, std::as_writable_bytes(std::span(&link, 1)))) break;
    read(next_, receive);
    receive.work.wr_id = next_;
    ibv_recv_wr* bad;
    if (softhca::post_srq_recv(soft, &receive.work, &bad) != 0) return true;  // full: later
    next_ = be16toh(link.next_wqe_index);
    ++taken_;
    ++there_;
  }
  return true;
}

void Srq::read(std::uint16_t index, Receive& to) const {
  constexpr std::size_t kLink = sizeof(mlx5_wqe_srq_next_seg);
  to.read(entries_, index * entry_nbytes_ + kLink,
          (entry_nbytes_ - kLink) / sizeof(mlx5_wqe_data_seg));
}

bool Srq::was_used() noexcept {
  const std::lock_guard guard(mutex_);
  if (there_ > 0) --there_;
  if (limit == 0 || there_ >= limit) return false;
  limit = 0;
  return true;
}

}  // namespace zerohop::mlx5sim
