// Send queue entries in the layout of mlx5 adapters: 64-byte blocks of big-endian segments
// (mlx5dv.h). Decoding reads only the given bytes, which may be arbitrary: device code of this
// process writes them.
#pragma once

#include <infiniband/verbs.h>

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>

namespace zerohop::softhca {

inline constexpr std::size_t kBlockBytes = 64;
inline constexpr std::size_t kWqeSegmentBytes = 16;  // unit of an entry's size: 63 at most
inline constexpr std::size_t kMostWqeSegments = 63;
inline constexpr std::uint32_t kMostBlocks = 16;
static_assert(kMostWqeSegments * kWqeSegmentBytes <= kMostBlocks * kBlockBytes);

struct Wqe {
  Wqe() = default;
  Wqe(const Wqe&) = delete;  // `work` points into this object
  Wqe& operator=(const Wqe&) = delete;

  // The request. Its list lies in `elements`; with IBV_SEND_INLINE its addresses are those of the
  // decoded bytes. wr_id is the index, by which the completion names the entry.
  ibv_send_wr work;
  std::array<ibv_sge, kMostWqeSegments> elements;
  ibv_wc_status status;  // IBV_WC_SUCCESS, or the status of an entry that cannot be executed
};

// How many blocks the entry with this first block takes: at least 1.
std::uint32_t wqe_blocks(std::span<const std::byte, kBlockBytes> first) noexcept;

// Decodes the entry in `blocks`, with the 16-bit `index` in the queue of `qp_number`.
void decode_wqe(std::span<const std::byte> blocks, std::uint32_t qp_number, std::uint16_t index,
                Wqe& entry) noexcept;

// Makes it an entry that moves no data and completes with `status`.
void refuse_wqe(Wqe& entry, ibv_wc_status status) noexcept;

}  // namespace zerohop::softhca
