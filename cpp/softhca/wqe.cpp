#include "softhca/wqe.hpp"

#include <endian.h>
#include <infiniband/mlx5dv.h>

#include <algorithm>
#include <cstring>

#include "softhca/wire.hpp"

namespace zerohop::softhca {
namespace {

static_assert(kBlockBytes == MLX5_SEND_WQE_BB && kWqeSegmentBytes == sizeof(mlx5_wqe_data_seg) &&
              kWqeSegmentBytes == sizeof(mlx5_wqe_ctrl_seg) &&
              kWqeSegmentBytes == sizeof(mlx5_wqe_raddr_seg) &&
              kWqeSegmentBytes == sizeof(mlx5_wqe_atomic_seg));

constexpr ibv_wc_status kMalformed = IBV_WC_LOC_QP_OP_ERR;

constexpr std::uint32_t kDump = 0x23;          // MLX5_OPCODE_DUMP of the Linux driver
constexpr std::uint32_t kSegmentsMask = 0x3f;  // of the control segment's second word
constexpr unsigned kFenceShift = 5;            // of fm_ce_se
constexpr unsigned kCompletionMask = 3u << 2;

// The unread rest of an entry.
class Segments {
 public:
  explicit Segments(std::span<const std::byte> bytes) : bytes_(bytes) {}
  bool empty() const noexcept { return bytes_.empty(); }

  // The next bytes, in as many segments as they touch; null if the entry ends before.
  const std::byte* take(std::size_t nbytes) noexcept {
    const std::size_t whole = (nbytes + kWqeSegmentBytes - 1) / kWqeSegmentBytes * kWqeSegmentBytes;
    if (whole > bytes_.size()) return nullptr;
    const std::byte* taken = bytes_.data();
    bytes_ = bytes_.subspan(whole);
    return taken;
  }
  template <typename Segment>
  bool take(Segment& segment) noexcept {
    const std::byte* from = take(sizeof segment);
    if (from != nullptr) std::memcpy(&segment, from, sizeof segment);
    return from != nullptr;
  }
  std::uint32_t peek() const noexcept {  // the first word; not when empty()
    std::uint32_t word;
    std::memcpy(&word, bytes_.data(), sizeof word);
    return be32toh(word);
  }

 private:
  std::span<const std::byte> bytes_;
};

struct Control {
  std::uint32_t opcode;  // with its modifier in the uppermost byte
  std::uint16_t index;
  std::uint32_t qp_number;
  std::uint32_t segments;
  std::uint8_t flags;
  std::uint32_t immediate;  // network byte order
};

Control read_control(const std::byte* bytes) {
  mlx5_wqe_ctrl_seg segment;
  std::memcpy(&segment, bytes, sizeof segment);
  const std::uint32_t first = be32toh(segment.opmod_idx_opcode);
  const std::uint32_t second = be32toh(segment.qpn_ds);
  return {.opcode = first & 0xff0000ff,
          .index = static_cast<std::uint16_t>(first >> 8),
          .qp_number = second >> 8,
          .segments = second & kSegmentsMask,
          .flags = segment.fm_ce_se,
          .immediate = segment.imm};
}

bool add_inline(Segments& rest, std::uint32_t nbytes, Wqe& entry) {
  constexpr std::size_t kHeader = sizeof(mlx5_wqe_inl_data_seg);
  const std::byte* taken = rest.take(kHeader + nbytes);
  if (taken == nullptr) return false;
  entry.elements[static_cast<std::size_t>(entry.work.num_sge++)] = {
      reinterpret_cast<std::uint64_t>(taken + kHeader), nbytes, 0};
  return true;
}

bool add_pointer(Segments& rest, Wqe& entry) {
  mlx5_wqe_data_seg segment;
  if (!rest.take(segment)) return false;
  entry.elements[static_cast<std::size_t>(entry.work.num_sge++)] = {
      be64toh(segment.addr), be32toh(segment.byte_count), be32toh(segment.lkey)};
  return true;
}

// The data of an entry: all inline, or all by pointers.
ibv_wc_status read_data(Segments& rest, Wqe& entry) {
  std::uint64_t nbytes = 0;
  while (!rest.empty()) {
    const std::uint32_t count = rest.peek();
    const bool inlined = (count & MLX5_INLINE_SEG) != 0;
    const bool before = (entry.work.send_flags & IBV_SEND_INLINE) != 0;
    if (entry.work.num_sge > 0 && inlined != before) return kMalformed;
    if (inlined) entry.work.send_flags |= IBV_SEND_INLINE;
    const std::uint32_t length = count & ~std::uint32_t{MLX5_INLINE_SEG};
    if (!inlined && length == 0) return IBV_WC_LOC_LEN_ERR;  // 0 means 2 GiB
    nbytes += length;
    if (nbytes > wire::kMaxMessage) return IBV_WC_LOC_LEN_ERR;
    if (!(inlined ? add_inline(rest, length, entry) : add_pointer(rest, entry))) return kMalformed;
  }
  return IBV_WC_SUCCESS;
}

ibv_wc_status read_send(ibv_wr_opcode opcode, Segments& rest, Wqe& entry) {
  entry.work.opcode = opcode;
  return read_data(rest, entry);
}

ibv_wc_status read_rdma(ibv_wr_opcode opcode, Segments& rest, Wqe& entry) {
  mlx5_wqe_raddr_seg remote;
  if (!rest.take(remote)) return kMalformed;
  entry.work.opcode = opcode;
  entry.work.wr.rdma.remote_addr = be64toh(remote.raddr);
  entry.work.wr.rdma.rkey = be32toh(remote.rkey);
  return read_data(rest, entry);
}

ibv_wc_status read_atomic(ibv_wr_opcode opcode, Segments& rest, Wqe& entry) {
  mlx5_wqe_raddr_seg remote;
  mlx5_wqe_atomic_seg operands;
  if (!rest.take(remote) || !rest.take(operands)) return kMalformed;
  const std::uint64_t swap_add = be64toh(operands.swap_add);
  const bool swaps = opcode == IBV_WR_ATOMIC_CMP_AND_SWP;
  entry.work.opcode = opcode;
  entry.work.wr.atomic.remote_addr = be64toh(remote.raddr);
  entry.work.wr.atomic.rkey = be32toh(remote.rkey);
  entry.work.wr.atomic.compare_add = swaps ? be64toh(operands.compare) : swap_add;
  entry.work.wr.atomic.swap = swaps ? swap_add : 0;
  return read_data(rest, entry);
}

ibv_wc_status read_operation(std::uint32_t opcode, Segments& rest, Wqe& entry) {
  switch (opcode) {
    // Executed as a write of no bytes: it completes in order, and no key is checked.
    case MLX5_OPCODE_NOP: return IBV_WC_SUCCESS;
    case kDump: return IBV_WC_SUCCESS;  // nothing here is visible later than its completion
    case MLX5_OPCODE_SEND: return read_send(IBV_WR_SEND, rest, entry);
    case MLX5_OPCODE_SEND_IMM: return read_send(IBV_WR_SEND_WITH_IMM, rest, entry);
    case MLX5_OPCODE_RDMA_WRITE: return read_rdma(IBV_WR_RDMA_WRITE, rest, entry);
    case MLX5_OPCODE_RDMA_WRITE_IMM: return read_rdma(IBV_WR_RDMA_WRITE_WITH_IMM, rest, entry);
    case MLX5_OPCODE_RDMA_READ: return read_rdma(IBV_WR_RDMA_READ, rest, entry);
    case MLX5_OPCODE_ATOMIC_CS: return read_atomic(IBV_WR_ATOMIC_CMP_AND_SWP, rest, entry);
    case MLX5_OPCODE_ATOMIC_FA: return read_atomic(IBV_WR_ATOMIC_FETCH_AND_ADD, rest, entry);
    default: return kMalformed;
  }
}

// Any requested ordering is provided by the strongest: wait for reads and atomics.
unsigned flags_of(std::uint8_t flags) {
  unsigned found = 0;
  if ((flags & kCompletionMask) >= MLX5_WQE_CTRL_CQ_UPDATE) found |= IBV_SEND_SIGNALED;
  if ((flags & MLX5_WQE_CTRL_SOLICITED) != 0) found |= IBV_SEND_SOLICITED;
  if (flags >> kFenceShift != 0) found |= IBV_SEND_FENCE;
  return found;
}

}  // namespace

std::uint32_t wqe_blocks(std::span<const std::byte, kBlockBytes> first) noexcept {
  constexpr std::uint32_t kPerBlock = kBlockBytes / kWqeSegmentBytes;
  const std::uint32_t segments = read_control(first.data()).segments;
  return std::max(1u, (segments + kPerBlock - 1) / kPerBlock);
}

void decode_wqe(std::span<const std::byte> blocks, std::uint32_t qp_number, std::uint16_t index,
                Wqe& entry) noexcept {
  const Control control = read_control(blocks.data());
  entry.work = {};
  entry.work.wr_id = index;
  entry.work.opcode = IBV_WR_RDMA_WRITE;
  entry.work.sg_list = entry.elements.data();
  entry.work.send_flags = flags_of(control.flags);
  entry.work.imm_data = control.immediate;
  const std::size_t nbytes = control.segments * kWqeSegmentBytes;
  const bool whole = nbytes > 0 && nbytes <= blocks.size();
  entry.status = kMalformed;
  if (whole && control.index == index && control.qp_number == qp_number) {
    Segments rest(blocks.first(nbytes).subspan(kWqeSegmentBytes));
    entry.status = read_operation(control.opcode, rest, entry);
  }
  if (entry.status != IBV_WC_SUCCESS) refuse_wqe(entry, entry.status);
}

void refuse_wqe(Wqe& entry, ibv_wc_status status) noexcept {
  entry.status = status;
  entry.work.num_sge = 0;
  entry.work.send_flags &= ~unsigned{IBV_SEND_INLINE};
}

}  // namespace zerohop::softhca
