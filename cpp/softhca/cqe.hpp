// Completion queue entries in the layout of mlx5 adapters (mlx5dv.h).
#pragma once

#include <infiniband/mlx5dv.h>
#include <infiniband/verbs.h>

#include <cstdint>

namespace zerohop::softhca {

// The entry for a completion; `counter` names the completed work queue entry. `owner` is the bit
// that flips with every turn of the ring. An opcode with immediate data is reported as the one
// without, as in ibv_wc.
mlx5_cqe64 encode_cqe(const ibv_wc& completion, std::uint16_t counter, bool owner) noexcept;

// The content of a ring place before its first completion.
mlx5_cqe64 invalid_cqe() noexcept;

}  // namespace zerohop::softhca
