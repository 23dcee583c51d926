// Completion queue entries as mlx5 adapters lay them out (mlx5dv.h).
#pragma once

#include <infiniband/mlx5dv.h>
#include <infiniband/verbs.h>

#include <cstdint>

namespace zerohop::softhca {

// The entry for a completion; `counter` names the work queue entry that is complete. `owner` is
// the bit that flips with every turn of the ring. An opcode with immediate data is told as the one
// without, like in ibv_wc.
mlx5_cqe64 encode_cqe(const ibv_wc& completion, std::uint16_t counter, bool owner) noexcept;

// What lies in a place of the ring before its first completion.
mlx5_cqe64 invalid_cqe() noexcept;

}  // namespace zerohop::softhca
