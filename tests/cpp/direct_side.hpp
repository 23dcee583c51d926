// What a GPU does with a direct queue pair, done by CPU threads: entries written with the
// structures of mlx5dv.h, doorbells, completions by the owner bit. Uses only the mlx5dv table.
#pragma once

#include <endian.h>
#include <infiniband/mlx5dv.h>

#include <atomic>
#include <cstring>
#include <optional>
#include <span>
#include <thread>

#include "soft_side.hpp"
#include "softhca/direct.hpp"

namespace zerohop::testing {

constexpr std::size_t kBlock = MLX5_SEND_WQE_BB;
constexpr std::uint8_t kSignaled = MLX5_WQE_CTRL_CQ_UPDATE;

inline const driver::Mlx5dv& mlx5() {
  return on_libibverbs() ? *driver::libmlx5().mlx5dv : *softhca::mlx5dv();
}

// One entry, segment by segment.
class Entry {
 public:
  explicit Entry(unsigned opcode, std::uint8_t flags = kSignaled) : opcode_(opcode) {
    mlx5_wqe_ctrl_seg control{};
    control.fm_ce_se = flags;
    add(control);
  }
  Entry& immediate(std::uint32_t value) {  // network byte order
    reinterpret_cast<mlx5_wqe_ctrl_seg*>(bytes.data())->imm = value;
    return *this;
  }
  Entry& remote(std::uint64_t address, std::uint32_t rkey) {
    return add(mlx5_wqe_raddr_seg{htobe64(address), htobe32(rkey), 0});
  }
  Entry& operands(std::uint64_t swap_add, std::uint64_t compare) {
    return add(mlx5_wqe_atomic_seg{htobe64(swap_add), htobe64(compare)});
  }
  Entry& pointer(const ibv_sge& element) {
    return add(
        mlx5_wqe_data_seg{htobe32(element.length), htobe32(element.lkey), htobe64(element.addr)});
  }
  Entry& inlined(std::span<const std::byte> data) {
    mlx5_wqe_inl_data_seg header{
        htobe32(static_cast<std::uint32_t>(data.size()) | std::uint32_t{MLX5_INLINE_SEG})};
    const std::size_t at = bytes.size();
    bytes.resize(at + (sizeof header + data.size() + 15) / 16 * 16);
    std::memcpy(&bytes[at], &header, sizeof header);
    if (!data.empty()) std::memcpy(&bytes[at + sizeof header], data.data(), data.size());
    return *this;
  }
  std::uint32_t blocks() const {
    return static_cast<std::uint32_t>((bytes.size() + kBlock - 1) / kBlock);
  }
  // The entry as laid out in the ring.
  std::vector<std::byte> at(std::uint32_t index, std::uint32_t qp_number) const {
    std::vector<std::byte> whole(bytes);
    whole.resize(blocks() * kBlock);
    auto* control = reinterpret_cast<mlx5_wqe_ctrl_seg*>(whole.data());
    control->opmod_idx_opcode = htobe32((index & 0xffff) << 8 | opcode_);
    control->qpn_ds = htobe32(qp_number << 8 | static_cast<std::uint32_t>(bytes.size() / 16));
    return whole;
  }

  std::vector<std::byte> bytes;

 private:
  template <typename Segment>
  Entry& add(const Segment& segment) {
    const std::size_t at = bytes.size();
    bytes.resize(at + sizeof segment);
    std::memcpy(&bytes[at], &segment, sizeof segment);
    return *this;
  }
  unsigned opcode_;
};

struct Completion {
  unsigned opcode;    // MLX5_CQE_*
  unsigned syndrome;  // of an error
  std::uint32_t qp_number;
  std::uint16_t index;
  std::uint32_t nbytes;
  std::uint32_t immediate;  // network byte order
};

class CompletionRing {
 public:
  explicit CompletionRing(const mlx5dv_cq& direct) : cq(direct) {}

  // The next completion; `keep` does not free its place.
  std::optional<Completion> poll(bool keep = false) {
    auto* words = static_cast<std::uint64_t*>(cq.buf) + (taken_ & (cq.cqe_cnt - 1)) * 8;
    std::uint64_t copy[8];
    copy[7] = std::atomic_ref(words[7]).load(std::memory_order_acquire);
    const auto last = static_cast<unsigned>(copy[7] >> 56);
    const bool turn = (taken_ & cq.cqe_cnt) != 0;
    if (last >> 4 == MLX5_CQE_INVALID || ((last & 1) != 0) != turn) return std::nullopt;
    for (int i = 0; i < 7; ++i) copy[i] = std::atomic_ref(words[i]).load(std::memory_order_relaxed);
    ++taken_;
    if (!keep) {
      std::atomic_ref(cq.dbrec[0]).store(htobe32(taken_ & 0xffffff), std::memory_order_release);
    }
    return read(copy);
  }
  Completion wait(bool keep = false) {
    const auto end = Clock::now() + kPatience;
    auto found = poll(keep);
    while (!found && Clock::now() < end) {
      std::this_thread::yield();  // lets the device's threads run, where cores are few
      found = poll(keep);
    }
    REQUIRE(found.has_value());
    return *found;
  }

  mlx5dv_cq cq;

 private:
  static Completion read(const std::uint64_t* words) {
    mlx5_cqe64 entry;
    std::memcpy(&entry, words, sizeof entry);
    mlx5_err_cqe error;
    std::memcpy(&error, words, sizeof error);
    const unsigned opcode = entry.op_own >> 4;
    const bool failed = opcode == MLX5_CQE_REQ_ERR || opcode == MLX5_CQE_RESP_ERR;
    return {.opcode = opcode,
            .syndrome = failed ? error.syndrome : 0u,
            .qp_number = be32toh(entry.sop_drop_qpn) & 0xffffff,
            .index = be16toh(entry.wqe_counter),
            .nbytes = be32toh(entry.byte_cnt),
            .immediate = entry.imm_inval_pkey};
  }
  std::uint32_t taken_ = 0;
};

class SendRing {
 public:
  SendRing(const mlx5dv_qp& direct, std::uint32_t number) : qp(direct), qp_number(number) {}

  // For one thread: writes without a doorbell. Returns the index of the entry.
  std::uint32_t write(const Entry& entry) {
    const std::uint32_t index = posted;
    put(index, entry.at(index, qp_number));
    posted += entry.blocks();
    return index;
  }
  std::uint32_t post(const Entry& entry) {
    const std::uint32_t index = write(entry);
    ring();
    return index;
  }
  void ring() { ring(posted); }
  void ring(std::uint32_t until) {
    std::atomic_ref(qp.dbrec[MLX5_SND_DBR])
        .store(htobe32(until & 0xffff), std::memory_order_release);
    ring_alone(until);
  }
  void ring_alone(std::uint32_t until) {
    const std::uint64_t words =
        std::uint64_t{htobe32(qp_number << 8 | 1)} << 32 | htobe32(((until - 1) & 0xffff) << 8);
    std::atomic_ref(*static_cast<std::uint64_t*>(qp.bf.reg))
        .store(words, std::memory_order_release);
  }
  // Whether the device has taken the last doorbell.
  bool answered() const {
    return std::atomic_ref(*static_cast<std::uint64_t*>(qp.bf.reg)).load() == 0;
  }
  void put(std::uint32_t index, std::span<const std::byte> blocks) {
    for (std::size_t at = 0; at < blocks.size(); at += 8) {
      const std::size_t place = (index + at / kBlock) & (qp.sq.wqe_cnt - 1);
      std::uint64_t word;
      std::memcpy(&word, &blocks[at], sizeof word);
      auto* to = static_cast<std::byte*>(qp.sq.buf) + place * kBlock + at % kBlock;
      std::atomic_ref(*reinterpret_cast<std::uint64_t*>(to)).store(word, std::memory_order_relaxed);
    }
  }

  mlx5dv_qp qp;
  std::uint32_t qp_number;
  std::uint32_t posted = 0;  // blocks
};

// The queues of a Side that is not connected yet, made direct.
struct DirectSide {
  explicit DirectSide(const SideOptions& options = {}) : side(options) {}
  Side side;
  SendRing sends{open_sends(side), side.qp->qp_num};
  CompletionRing completions{open_completions(side)};

  static mlx5dv_qp open_sends(Side& of) {
    mlx5dv_qp out{};
    mlx5dv_obj objects{};
    objects.qp = {of.qp, &out};
    REQUIRE(mlx5().init_obj(&objects, MLX5DV_OBJ_QP) == 0);
    return out;
  }
  static mlx5dv_cq open_completions(Side& of) {
    mlx5dv_cq out{};
    mlx5dv_obj objects{};
    objects.cq = {of.cq, &out};
    REQUIRE(mlx5().init_obj(&objects, MLX5DV_OBJ_CQ) == 0);
    return out;
  }

  Entry write_to(const Side& peer, std::size_t from, std::size_t to, std::size_t nbytes,
                 std::uint8_t flags = kSignaled) const {
    Entry entry(MLX5_OPCODE_RDMA_WRITE, flags);
    entry.remote(peer.at(to), peer.mr->rkey);
    if (nbytes > 0) entry.pointer(side.sge(from, nbytes));
    return entry;
  }
  // Waits for the completion of that entry.
  void expect(std::uint32_t index, unsigned opcode = MLX5_CQE_REQ, unsigned syndrome = 0) {
    const Completion completion = completions.wait();
    CHECK(completion.index == (index & 0xffff));
    CHECK(completion.qp_number == sends.qp_number);
    CHECK(completion.opcode == opcode);
    CHECK(completion.syndrome == syndrome);
  }
  void expect_error(std::uint32_t index, unsigned syndrome) {
    expect(index, MLX5_CQE_REQ_ERR, syndrome);
  }
};

struct DirectPair {
  explicit DirectPair(const SideOptions& options = {}) : a(options), b(options) {
    connect(a.side, b);
  }
  DirectSide a;
  Side b;  // verbs only; driven by its device alone
};

inline void fill(Side& side, std::size_t offset, std::size_t nbytes, unsigned seed) {
  for (std::size_t i = 0; i < nbytes; ++i) {
    side.buffer[offset + i] = static_cast<std::byte>(i * 31 + seed);
  }
}

inline bool is_filled(const Side& side, std::size_t offset, std::size_t nbytes, unsigned seed) {
  for (std::size_t i = 0; i < nbytes; ++i) {
    if (side.buffer[offset + i] != static_cast<std::byte>(i * 31 + seed)) return false;
  }
  return true;
}

}  // namespace zerohop::testing
