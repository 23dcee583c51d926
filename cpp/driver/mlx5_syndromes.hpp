// Why a work request failed, as completion queue entries of mlx5 adapters say it (mlx5dv.h), and as
// verbs do. Source: providers/mlx5/cq.c of rdma-core, mlx5_handle_error_cqe().
#pragma once

#include <infiniband/mlx5dv.h>
#include <infiniband/verbs.h>

#include <array>
#include <cstdint>

namespace zerohop::driver {

struct Mlx5Syndrome {
  std::uint8_t syndrome;
  ibv_wc_status status;
};

constexpr std::array<Mlx5Syndrome, 13> kMlx5Syndromes{{
    {MLX5_CQE_SYNDROME_LOCAL_LENGTH_ERR, IBV_WC_LOC_LEN_ERR},
    {MLX5_CQE_SYNDROME_LOCAL_QP_OP_ERR, IBV_WC_LOC_QP_OP_ERR},
    {MLX5_CQE_SYNDROME_LOCAL_PROT_ERR, IBV_WC_LOC_PROT_ERR},
    {MLX5_CQE_SYNDROME_WR_FLUSH_ERR, IBV_WC_WR_FLUSH_ERR},
    {MLX5_CQE_SYNDROME_MW_BIND_ERR, IBV_WC_MW_BIND_ERR},
    {MLX5_CQE_SYNDROME_BAD_RESP_ERR, IBV_WC_BAD_RESP_ERR},
    {MLX5_CQE_SYNDROME_LOCAL_ACCESS_ERR, IBV_WC_LOC_ACCESS_ERR},
    {MLX5_CQE_SYNDROME_REMOTE_INVAL_REQ_ERR, IBV_WC_REM_INV_REQ_ERR},
    {MLX5_CQE_SYNDROME_REMOTE_ACCESS_ERR, IBV_WC_REM_ACCESS_ERR},
    {MLX5_CQE_SYNDROME_REMOTE_OP_ERR, IBV_WC_REM_OP_ERR},
    {MLX5_CQE_SYNDROME_TRANSPORT_RETRY_EXC_ERR, IBV_WC_RETRY_EXC_ERR},
    {MLX5_CQE_SYNDROME_RNR_RETRY_EXC_ERR, IBV_WC_RNR_RETRY_EXC_ERR},
    {MLX5_CQE_SYNDROME_REMOTE_ABORTED_ERR, IBV_WC_REM_ABORT_ERR},
}};

constexpr ibv_wc_status status_of_syndrome(std::uint8_t syndrome) noexcept {
  for (const Mlx5Syndrome& each : kMlx5Syndromes) {
    if (each.syndrome == syndrome) return each.status;
  }
  return IBV_WC_GENERAL_ERR;
}

constexpr std::uint8_t syndrome_of_status(ibv_wc_status status) noexcept {
  for (const Mlx5Syndrome& each : kMlx5Syndromes) {
    if (each.status == status) return each.syndrome;
  }
  return 0xff;  // read as IBV_WC_GENERAL_ERR
}

}  // namespace zerohop::driver
