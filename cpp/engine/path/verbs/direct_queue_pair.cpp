#include "engine/path/verbs/direct_queue_pair.hpp"

#include <atomic>
#include <string>
#include <utility>

#include "base/error.hpp"
#include "driver/mlx5_syndromes.hpp"
#include "driver/verbs.hpp"
#include "softhca/direct.hpp"
#include "zerohop/mlx5.h"

namespace zerohop::engine {
namespace {

std::shared_ptr<const driver::Mlx5dv> mlx5dv_of(const Rail& rail) {
  if (rail.software()) return softhca::mlx5dv();
  const auto& library = driver::libmlx5();
  if (!library.mlx5dv)
    throw RouteUnavailable("kernels cannot drive queue pairs: " + library.reason);
  // Asked for, because names say nothing: udev renames mlx5_0 to rocep1s0 and the like.
  if (!library.mlx5dv->is_supported(rail.device().context()->device)) {
    throw RouteUnavailable("kernels cannot drive queue pairs of device " + rail.name() +
                           ": it is no mlx5 adapter, whose rings they know");
  }
  return library.mlx5dv;
}

rdma::QueuePairOptions options_of_ring(rdma::QueuePairOptions options) {
  options.send_depth = DirectQueuePair::kEntries;
  options.receive_depth = 1;
  options.send_sge = 1;
  options.inline_bytes = device::mlx5::kMostInline;
  return options;
}

void check_init(int error, const char* what) {
  if (error != 0)
    throw VerbsError(errno_message(std::string("mlx5dv_init_obj of ") + what, error), error);
}

}  // namespace

DirectQueuePair::DirectQueuePair(const Rail& rail, const rdma::QueuePairOptions& options)
    : software_(rail.software()),
      mlx5dv_(mlx5dv_of(rail)),
      has_second_path_(driver::has_data_direct(*mlx5dv_, rail.device().context())),
      // An entry that fits one block may be counted as several, each with its own completion.
      queue_(rdma::CompletionQueue::create(rail.domain()->device_ptr(), 4 * kEntries)),
      queue_pair_(rdma::QueuePair::create(rdma::ProtectionDomain::with_own_register(rail.domain()),
                                          queue_, queue_, options_of_ring(options))),
      results_((4 * kEntries + 1) * sizeof(std::uint64_t), nullptr, 0),
      results_region_(rdma::MemoryRegion::create(rail.domain(), results_.ring(),
                                                 results_.all().size(), IBV_ACCESS_LOCAL_WRITE)) {
  queue_pair_->to_init();
  mlx5dv_obj objects{};
  objects.qp = {queue_pair_->handle(), &sends_};
  check_init(mlx5dv_->init_obj(&objects, MLX5DV_OBJ_QP), "a queue pair");
  objects.cq = {queue_->handle(), &completions_};
  check_init(mlx5dv_->init_obj(&objects, MLX5DV_OBJ_CQ), "a completion queue");
  const bool fits = sends_.sq.stride == device::mlx5::kBlockBytes &&
                    completions_.cqe_size == device::mlx5::kBlockBytes &&
                    completions_.cqe_cnt >= sends_.sq.wqe_cnt && sends_.sq.wqe_cnt <= 4 * kEntries;
  if (fits) return;
  throw RouteUnavailable("kernels cannot drive queue pairs of device " + rail.name() +
                         ": its rings (" + std::to_string(sends_.sq.wqe_cnt) + " blocks of " +
                         std::to_string(sends_.sq.stride) + " bytes, " +
                         std::to_string(completions_.cqe_cnt) + " completions of " +
                         std::to_string(completions_.cqe_size) + ") have an unsupported layout");
}

std::string DirectQueuePair::failure() const {
  if (queue_pair_->state() != IBV_QPS_ERR) return "";
  auto* const entries = static_cast<mlx5_err_cqe*>(completions_.buf);
  for (std::uint32_t i = 0; i < completions_.cqe_cnt; ++i) {
    // Written last by the device, which may still be at it.
    const auto op = std::atomic_ref(entries[i].op_own).load(std::memory_order_acquire) >> 4;
    if (op != MLX5_CQE_REQ_ERR) continue;
    const ibv_wc_status status = driver::status_of_syndrome(entries[i].syndrome);
    if (status == IBV_WC_WR_FLUSH_ERR) continue;  // behind the one that failed
    return std::string(rdma::completion_status_name(status)) + " (syndrome " +
           std::to_string(entries[i].syndrome) + ", of the vendor " +
           std::to_string(entries[i].vendor_err_synd) +
           "): " + rdma::completion_status_help(status);
  }
  return "no entry of its own has failed: the peer is lost, or it closed its end";
}

DirectTarget::DirectTarget(const Rail& rail, const rdma::QueuePairOptions& options,
                           std::shared_ptr<Board> board, const rdma::QueuePairAddress& source)
    : board_(std::move(board)),
      queue_(rdma::CompletionQueue::create(rail.domain()->device_ptr(), 1)),
      slots_(rdma::MemoryRegion::create(rail.domain(), board_->pages().slots,
                                        sizeof(BoardPages::slots),
                                        IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE)),
      queue_pair_(
          rdma::QueuePair::create(rail.domain(), queue_, queue_, options_of_ring(options))) {
  queue_pair_->to_init();
  queue_pair_->connect(source);
  board_->pages().kernels.fetch_add(1);  // their puts wake no thread
}

DirectTarget::~DirectTarget() { board_->pages().kernels.fetch_sub(1); }

}  // namespace zerohop::engine
