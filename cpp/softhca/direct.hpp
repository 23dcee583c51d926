// Queue pairs and completion queues that a GPU drives by itself: the software HCA's filling of the
// mlx5dv table.
//
// A queue pair becomes direct by init_obj(MLX5DV_OBJ_QP), before it is ready to send: from then on
// its sends are posted to the ring in memory and ibv_post_send is refused; ibv_post_recv stays. A
// completion queue becomes direct by init_obj(MLX5DV_OBJ_CQ), while it is empty: ibv_poll_cq fails
// from then on. One without the other works, too; wr_id is then the index of the entry.
#pragma once

#include <infiniband/mlx5dv.h>

#include <cstddef>
#include <cstdint>
#include <memory>

#include "driver/mlx5dv.hpp"

namespace zerohop::softhca {

// init_obj and the two placements; the functions of Data Direct are null.
std::shared_ptr<const driver::Mlx5dv> mlx5dv();

// The members of driver::Mlx5dv. 0 or errno.
int init_obj(mlx5dv_obj* objects, std::uint64_t types);
// Make the object direct with its ring in memory of the caller, which stays valid as long as the
// object: 64-byte aligned, the greatest power of two of entries of 64 bytes that fits.
int place_send_queue(ibv_qp* qp, void* address, std::size_t nbytes);
int place_completion_queue(ibv_cq* cq, void* address, std::size_t nbytes);

}  // namespace zerohop::softhca
