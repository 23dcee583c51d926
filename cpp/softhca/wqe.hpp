// Send queue entries as mlx5 adapters lay them out: 64-byte blocks of big-endian segments
// (mlx5dv.h). Decoding looks at nothing but the bytes it is given, which may be any bytes: device
// code of this process writes them.
#pragma once

#include <infiniband/verbs.h>

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>

namespace zerohop::softhca {

inline constexpr std::size_t kBlockBytes = 64;
inline constexpr std::size_t kWqeSegmentBytes = 16;  // an entry tells its size in these: 63 at most
inline constexpr std::size_t kMostWqeSegments = 63;
inline constexpr std::uint32_t kMostBlocks = 16;
static_assert(kMostWqeSegments * kWqeSegmentBytes <= kMostBlocks * kBlockBytes);

struct Wqe {
  Wqe() = default;
  Wqe(const Wqe&) = delete;  // the request names a list in here
  Wqe& operator=(const Wqe&) = delete;

  // What the entry asks for. The list lies in `elements`; with IBV_SEND_INLINE its addresses are
  // those of the decoded bytes. wr_id is the index, as the completion names the entry by it.
  ibv_send_wr work;
  std::array<ibv_sge, kMostWqeSegments> elements;
  ibv_wc_status status;  // IBV_WC_SUCCESS, or with what an entry ends that nobody can carry out
};

// How many blocks the entry takes whose first block this is: at least 1.
std::uint32_t wqe_blocks(std::span<const std::byte, kBlockBytes> first) noexcept;

// Decodes the entry in `blocks`, the one with the 16-bit `index` in the queue of `qp_number`.
void decode_wqe(std::span<const std::byte> blocks, std::uint32_t qp_number, std::uint16_t index,
                Wqe& entry) noexcept;

// Makes it an entry that moves nothing and ends with `status`.
void refuse_wqe(Wqe& entry, ibv_wc_status status) noexcept;

}  // namespace zerohop::softhca
