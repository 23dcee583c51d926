#include "softhca/cqe.hpp"

#include <endian.h>

#include <algorithm>
#include <bit>
#include <cstddef>

#include "driver/mlx5_syndromes.hpp"

namespace zerohop::softhca {
namespace {

constexpr unsigned kOpcodeShift = 4;  // of op_own
constexpr unsigned kSendOpcodeShift = 24;

static_assert(sizeof(mlx5_err_cqe) == sizeof(mlx5_cqe64) &&
              offsetof(mlx5_err_cqe, op_own) == offsetof(mlx5_cqe64, op_own));

bool is_receive(const ibv_wc& completion) { return (completion.opcode & IBV_WC_RECV) != 0; }

std::uint32_t send_opcode(ibv_wc_opcode opcode) {
  switch (opcode) {
    case IBV_WC_SEND: return MLX5_OPCODE_SEND;
    case IBV_WC_RDMA_READ: return MLX5_OPCODE_RDMA_READ;
    case IBV_WC_COMP_SWAP: return MLX5_OPCODE_ATOMIC_CS;
    case IBV_WC_FETCH_ADD: return MLX5_OPCODE_ATOMIC_FA;
    default: return MLX5_OPCODE_RDMA_WRITE;
  }
}

// The word that holds the opcode and the queue pair number.
std::uint32_t opcode_and_number(const ibv_wc& completion) {
  const std::uint32_t opcode = is_receive(completion) ? 0 : send_opcode(completion.opcode);
  return htobe32(opcode << kSendOpcodeShift | completion.qp_num);
}

std::uint8_t opcode_of(const ibv_wc& completion) {
  if (completion.status != IBV_WC_SUCCESS) {
    return is_receive(completion) ? MLX5_CQE_RESP_ERR : MLX5_CQE_REQ_ERR;
  }
  if (completion.opcode == IBV_WC_RECV_RDMA_WITH_IMM) return MLX5_CQE_RESP_WR_IMM;
  if (!is_receive(completion)) return MLX5_CQE_REQ;
  const bool immediate = (completion.wc_flags & IBV_WC_WITH_IMM) != 0;
  return immediate ? MLX5_CQE_RESP_SEND_IMM : MLX5_CQE_RESP_SEND;
}

mlx5_cqe64 encode_error(const ibv_wc& completion, std::uint16_t counter) {
  mlx5_err_cqe entry{};
  entry.syndrome = driver::syndrome_of_status(completion.status);
  entry.vendor_err_synd = static_cast<std::uint8_t>(std::min(completion.vendor_err, 0xffu));
  entry.s_wqe_opcode_qpn = opcode_and_number(completion);
  entry.wqe_counter = htobe16(counter);
  return std::bit_cast<mlx5_cqe64>(entry);
}

}  // namespace

mlx5_cqe64 encode_cqe(const ibv_wc& completion, std::uint16_t counter, bool owner) noexcept {
  mlx5_cqe64 entry{};
  if (completion.status != IBV_WC_SUCCESS) {
    entry = encode_error(completion, counter);
  } else {
    entry.imm_inval_pkey = completion.imm_data;  // network byte order on both sides
    entry.byte_cnt = htobe32(completion.byte_len);
    entry.flags_rqpn = htobe32(completion.src_qp);
    entry.sop_drop_qpn = opcode_and_number(completion);
    entry.wqe_counter = htobe16(counter);
  }
  entry.op_own = static_cast<std::uint8_t>(opcode_of(completion) << kOpcodeShift | unsigned{owner});
  return entry;
}

mlx5_cqe64 invalid_cqe() noexcept {
  mlx5_cqe64 entry{};
  entry.op_own = MLX5_CQE_INVALID << kOpcodeShift;
  return entry;
}

}  // namespace zerohop::softhca
