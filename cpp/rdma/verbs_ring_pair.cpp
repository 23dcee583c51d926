#include "rdma/verbs_ring_pair.hpp"

#include "driver/verbs_call.hpp"

namespace zerohop::rdma {
namespace {

// An entry that fits one block may be counted as several, each with its own completion.
constexpr int kMostBlocksOfEntry = 4;

}  // namespace

VerbsRingPair::VerbsRingPair(const std::shared_ptr<ProtectionDomain>& domain,
                             const driver::Mlx5dv& mlx5dv, QueuePairOptions options,
                             const PlacedRing& sends, const PlacedRing& completions)
    : queue_(CompletionQueue::create(domain->device_ptr(),
                                     kMostBlocksOfEntry * static_cast<int>(options.send_depth))),
      queue_pair_(
          QueuePair::create(ProtectionDomain::with_own_register(domain), queue_, queue_, options)) {
  const auto check = [](int error, const char* what) {
    driver::check_errno(error, std::string("mlx5dv_init_obj of ") + what);
  };
  queue_pair_->to_init();
  if (sends.at != nullptr) {
    check(mlx5dv.place_send_queue(queue_pair_->handle(), sends.at, sends.nbytes, sends.copier),
          "a send queue");
  }
  if (completions.at != nullptr) {
    check(mlx5dv.place_completion_queue(queue_->handle(), completions.at, completions.nbytes,
                                        completions.copier),
          "a completion queue");
  }
  mlx5dv_obj objects{};
  objects.qp = {queue_pair_->handle(), &sends_};
  check(mlx5dv.init_obj(&objects, MLX5DV_OBJ_QP), "a queue pair");
  objects.cq = {queue_->handle(), &completions_};
  check(mlx5dv.init_obj(&objects, MLX5DV_OBJ_CQ), "a completion queue");
}

}  // namespace zerohop::rdma
