#include "softhca/direct.hpp"

#include <algorithm>
#include <bit>
#include <cerrno>
#include <memory>
#include <new>
#include <utility>

#include "base/error.hpp"
#include "softhca/completion_queue.hpp"
#include "softhca/context.hpp"
#include "softhca/queue_pair.hpp"

namespace zerohop::softhca {
namespace {

// Size in blocks of the largest entry that the queue pair was created for.
std::uint32_t blocks_of_entry(const ibv_qp_cap& cap) {
  constexpr std::uint32_t kBefore = 3;  // segments: control, remote address, atomic operands
  constexpr std::uint32_t kHeader = 4;  // bytes of inline data
  constexpr std::uint32_t kPerBlock = kBlockBytes / kWqeSegmentBytes;
  const std::uint32_t inlined =
      (cap.max_inline_data + kHeader + kWqeSegmentBytes - 1) / kWqeSegmentBytes;
  return (kBefore + std::max(cap.max_send_sge, inlined) + kPerBlock - 1) / kPerBlock;
}

bool is_place(const void* address, std::size_t nbytes) {
  return address != nullptr && reinterpret_cast<std::uintptr_t>(address) % kBlockBytes == 0 &&
         nbytes >= kBlockBytes;
}

std::uint32_t entries_in(std::size_t nbytes, std::uint32_t most) {
  return static_cast<std::uint32_t>(
      std::min<std::size_t>(std::bit_floor(nbytes / kBlockBytes), most));
}

// The place of a ring; by default pages of its own, of the size needed.
struct Placement {
  std::byte* at = nullptr;
  std::uint32_t entries = 0;
  std::shared_ptr<driver::Copier> copier{};
};

// 0 or errno.
int make_direct(QueuePair& qp, const Placement& given) {
  const std::uint32_t of_one = blocks_of_entry(qp.init.cap);
  const std::uint32_t needed = std::bit_ceil(qp.init.cap.max_send_wr * of_one);
  const std::uint32_t blocks = given.at != nullptr ? given.entries : needed;
  std::lock_guard control(qp.device.control);
  {
    std::lock_guard guard(qp.lock);
    if (qp.direct != nullptr) return given.at != nullptr ? EBUSY : 0;
    const bool early =
        qp.state == IBV_QPS_RESET || qp.state == IBV_QPS_INIT || qp.state == IBV_QPS_RTR;
    if (!early || blocks > DirectSends::kMostBlocksOfRing || blocks < of_one) return EINVAL;
    if (!qp.sends.reserve()) return ENOMEM;
    qp.direct = std::make_unique<DirectSends>(qp.qp_num, blocks, given.at, given.copier);
  }
  qp.device.doorbells.add(qp);
  qp.device.progress.watch_doorbells();
  return 0;
}

int make_direct(CompletionQueue& cq, const Placement& given) {
  Context& context = Context::of(cq.context);
  const std::uint32_t entries =
      given.at != nullptr ? given.entries : std::bit_ceil(static_cast<std::uint32_t>(cq.cqe));
  auto ring = std::make_unique<DirectCompletions>(context.direct_completion_queues.fetch_add(1) + 1,
                                                  entries, given.at, given.copier);
  return cq.make_direct(std::move(ring), /*this_one=*/given.at != nullptr);
}

template <typename Object>
int try_make_direct(Object& object, const Placement& given = {}) {
  if (Context::of(object.context).forked()) return ENODEV;
  try {
    return make_direct(object, given);
  } catch (const std::bad_alloc&) {
    return ENOMEM;
  } catch (const Error& error) {
    return error.code();
  }
}

}  // namespace

std::shared_ptr<const driver::Mlx5dv> mlx5dv() {
  static const auto table = [] {
    driver::Mlx5dv members;
    members.init_obj = softhca::init_obj;
    members.place_send_queue = softhca::place_send_queue;
    members.place_completion_queue = softhca::place_completion_queue;
    return std::make_shared<const driver::Mlx5dv>(members);
  }();
  return table;
}

int init_obj(mlx5dv_obj* objects, std::uint64_t types) {
  if ((types & ~std::uint64_t{MLX5DV_OBJ_QP | MLX5DV_OBJ_CQ}) != 0) return EOPNOTSUPP;
  if ((types & MLX5DV_OBJ_CQ) != 0) {
    CompletionQueue& cq = CompletionQueue::of(objects->cq.in);
    if (const int error = try_make_direct(cq); error != 0) return error;
    cq.describe(*objects->cq.out);
  }
  if ((types & MLX5DV_OBJ_QP) != 0) {
    QueuePair& qp = QueuePair::of(objects->qp.in);
    if (const int error = try_make_direct(qp); error != 0) return error;
    std::lock_guard guard(qp.lock);
    qp.direct->describe(*objects->qp.out);
  }
  return 0;
}

int place_send_queue(ibv_qp* handle, void* address, std::size_t nbytes,
                     std::shared_ptr<driver::Copier> copier) {
  if (!is_place(address, nbytes)) return EINVAL;
  return try_make_direct(QueuePair::of(handle),
                         {static_cast<std::byte*>(address),
                          entries_in(nbytes, DirectSends::kMostBlocksOfRing), std::move(copier)});
}

int place_completion_queue(ibv_cq* handle, void* address, std::size_t nbytes,
                           std::shared_ptr<driver::Copier> copier) {
  if (!is_place(address, nbytes)) return EINVAL;
  return try_make_direct(CompletionQueue::of(handle),
                         {static_cast<std::byte*>(address),
                          entries_in(nbytes, limits::kCompletions), std::move(copier)});
}

}  // namespace zerohop::softhca
