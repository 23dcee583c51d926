// Queue pairs and completion queues driven by a GPU: the software HCA's implementation of the
// mlx5dv table.
//
// init_obj(MLX5DV_OBJ_QP) makes a queue pair direct, before it is ready to send: from then on its
// sends are posted to the ring in memory and ibv_post_send is refused; ibv_post_recv still works.
// init_obj(MLX5DV_OBJ_CQ) makes an empty completion queue direct: ibv_poll_cq fails from then on.
// Either works without the other; wr_id is then the index of the entry.
#pragma once

#include <infiniband/mlx5dv.h>

#include <cstddef>
#include <cstdint>
#include <memory>

#include "driver/mlx5dv.hpp"

namespace zerohop::softhca {

// init_obj and the two placement functions; the Data Direct functions are null.
std::shared_ptr<const driver::Mlx5dv> mlx5dv();

// The members of driver::Mlx5dv. 0 or errno.
int init_obj(mlx5dv_obj* objects, std::uint64_t types);
// Makes the object direct, with its ring in the caller's memory, which must stay valid as long as
// the object: 64-byte aligned; uses the greatest power of two of 64-byte entries that fits. copier:
// for memory that the CPU cannot touch, and for no more than a few rings; else null.
int place_send_queue(ibv_qp* qp, void* address, std::size_t nbytes,
                     std::shared_ptr<driver::Copier> copier = nullptr);
int place_completion_queue(ibv_cq* cq, void* address, std::size_t nbytes,
                           std::shared_ptr<driver::Copier> copier = nullptr);

}  // namespace zerohop::softhca
