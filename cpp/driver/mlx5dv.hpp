// The mlx5dv function table: features of NVIDIA (Mellanox) adapters, found in libmlx5. The software
// HCA fills its part of the table with its own functions (softhca/direct.hpp).
//
// The prototypes are spelled out here, because distributions ship headers older than some
// functions.
#pragma once

#include <infiniband/mlx5dv.h>
#include <infiniband/verbs.h>

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>

#include "driver/copier.hpp"

namespace zerohop::driver {

// Registers through the adapter's second PCIe function, which reaches the GPU without the CPU.
constexpr int kMlx5DataDirect = 1;  // MLX5DV_REG_DMABUF_ACCESS_DATA_DIRECT
// A page of doorbell registers that nothing else uses (MLX5DV_UAR_ALLOC_TYPE_NC_DEDICATED).
constexpr std::uint32_t kMlx5OwnRegisters = 1u << 31;

// X(member, symbol, version, result, parameters). init_obj exists in two versions with different
// structures (MLX5_1.0 and 1.2); the header declares 1.2.
#define ZEROHOP_MLX5DV_REQUIRED(X)                                                           \
  X(init_obj, mlx5dv_init_obj, "MLX5_1.2", int, (mlx5dv_obj * objects, std::uint64_t types)) \
  X(is_supported, mlx5dv_is_supported, "MLX5_1.8", bool, (ibv_device * device))

// A missing optional symbol leaves a null member. Those of Data Direct appeared together, and those
// of DEVX by MLX5_1.19.
#define ZEROHOP_MLX5DV_OPTIONAL(X)                                                          \
  X(devx_alloc_uar, mlx5dv_devx_alloc_uar, "MLX5_1.7", mlx5dv_devx_uar*,                    \
    (ibv_context * context, std::uint32_t type))                                            \
  X(devx_free_uar, mlx5dv_devx_free_uar, "MLX5_1.7", void, (mlx5dv_devx_uar * uar))         \
  X(devx_query_eqn, mlx5dv_devx_query_eqn, "MLX5_1.7", int,                                 \
    (ibv_context * context, std::uint32_t vector, std::uint32_t* number))                   \
  X(devx_obj_create, mlx5dv_devx_obj_create, "MLX5_1.7", mlx5dv_devx_obj*,                  \
    (ibv_context * context, const void* in, std::size_t in_nbytes, void* out,               \
     std::size_t out_nbytes))                                                               \
  X(devx_obj_query, mlx5dv_devx_obj_query, "MLX5_1.7", int,                                 \
    (mlx5dv_devx_obj * object, const void* in, std::size_t in_nbytes, void* out,            \
     std::size_t out_nbytes))                                                               \
  X(devx_obj_modify, mlx5dv_devx_obj_modify, "MLX5_1.7", int,                               \
    (mlx5dv_devx_obj * object, const void* in, std::size_t in_nbytes, void* out,            \
     std::size_t out_nbytes))                                                               \
  X(devx_obj_destroy, mlx5dv_devx_obj_destroy, "MLX5_1.7", int, (mlx5dv_devx_obj * object)) \
  X(devx_umem_dereg, mlx5dv_devx_umem_dereg, "MLX5_1.7", int, (mlx5dv_devx_umem * memory))  \
  X(devx_umem_reg_ex, mlx5dv_devx_umem_reg_ex, "MLX5_1.19", mlx5dv_devx_umem*,              \
    (ibv_context * context, mlx5dv_devx_umem_in * in))                                      \
  X(get_data_direct_sysfs_path, mlx5dv_get_data_direct_sysfs_path, "MLX5_1.25", int,        \
    (ibv_context * context, char* path, std::size_t nbytes))                                \
  X(reg_dmabuf_mr, mlx5dv_reg_dmabuf_mr, "MLX5_1.25", ibv_mr*,                              \
    (ibv_pd * domain, std::uint64_t offset, std::size_t nbytes, std::uint64_t iova, int fd, \
     int access, int mlx5_access))

struct Mlx5dv {
#define ZEROHOP_MLX5DV_MEMBER(member, symbol, version, result, parameters) \
  result(*member) parameters = nullptr;
  ZEROHOP_MLX5DV_REQUIRED(ZEROHOP_MLX5DV_MEMBER)
  ZEROHOP_MLX5DV_OPTIONAL(ZEROHOP_MLX5DV_MEMBER)
#undef ZEROHOP_MLX5DV_MEMBER

  // Not a symbol of libmlx5: places the ring of the software HCA in the caller's memory; called
  // before init_obj (softhca/direct.hpp). Null elsewhere.
  int (*place_send_queue)(ibv_qp* qp, void* address, std::size_t nbytes,
                          std::shared_ptr<Copier> copier) = nullptr;
  int (*place_completion_queue)(ibv_cq* cq, void* address, std::size_t nbytes,
                                std::shared_ptr<Copier> copier) = nullptr;
};

// Whether programs may make queues by commands of their own (DEVX).
inline bool has_devx(const Mlx5dv& mlx5dv) { return mlx5dv.devx_umem_reg_ex != nullptr; }

// Whether the adapter has a second path to memory, Data Direct.
bool has_data_direct(const Mlx5dv& mlx5dv, ibv_context* context);

// The result of loading libmlx5: a table, or the reason why there is none.
struct Mlx5dvLibrary {
  std::shared_ptr<const Mlx5dv> mlx5dv;
  std::string reason;
};

// Loads the library called `soname`. Does not throw for an absent library.
Mlx5dvLibrary load_mlx5dv(const char* soname);

// Loads libmlx5.so.1 on the first call; later calls return the same answer.
const Mlx5dvLibrary& libmlx5();

}  // namespace zerohop::driver
