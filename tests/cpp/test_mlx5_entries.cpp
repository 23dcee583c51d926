// Entries of mlx5 queues: those that kernels write, compared byte for byte with the structures of
// rdma-core's mlx5dv.h; and the codec of the software HCA.
#include <doctest/doctest.h>

#include <random>

#include "direct_side.hpp"
#include "mutate.hpp"
#include "softhca/cqe.hpp"
#include "softhca/direct_completions.hpp"
#include "softhca/wqe.hpp"
#include "zerohop/mlx5.h"

namespace zerohop::testing {
namespace {

using namespace softhca;

namespace theirs = device::mlx5;

struct Entries {
  std::mt19937_64 random{7};
  theirs::Head head;
  theirs::Range remote, local;

  Entries() { draw(); }
  void draw() {
    head = {.queue_pair = number<std::uint32_t>() & 0xffffff, .index = number<std::uint32_t>()};
    remote = {number<std::uint64_t>(), number<std::uint32_t>()};
    local = {number<std::uint64_t>(), number<std::uint32_t>()};
  }
  template <typename T>
  T number() {
    return static_cast<T>(random());
  }
  ibv_sge element(std::uint32_t nbytes) const { return {local.address, nbytes, local.key}; }
  void check(const theirs::Block& ours, const Entry& wanted) {
    const auto bytes = std::as_bytes(std::span(ours.words));
    CHECK(std::vector(bytes.begin(), bytes.end()) == wanted.at(head.index, head.queue_pair));
    std::uint64_t first = 0;
    std::memcpy(&first, bytes.data(), sizeof first);
    CHECK(ours.doorbell() == first);
    Wqe decoded;
    decode_wqe(bytes, head.queue_pair, static_cast<std::uint16_t>(head.index), decoded);
    CHECK(decoded.status == IBV_WC_SUCCESS);
  }
};

TEST_CASE_FIXTURE(Entries, "each kind of entry is as mlx5dv.h lays it out") {
  for (int round = 0; round < 100; ++round, draw()) {
    const auto nbytes = static_cast<std::uint32_t>(1 + random() % (1 << 30));
    const auto immediate = number<std::uint32_t>();
    const auto value = number<std::uint64_t>();
    const auto other = number<std::uint64_t>();
    check(theirs::nop(head), Entry(MLX5_OPCODE_NOP));
    check(
        theirs::move(head, theirs::kWrite, remote, local, nbytes),
        Entry(MLX5_OPCODE_RDMA_WRITE).remote(remote.address, remote.key).pointer(element(nbytes)));
    check(theirs::move(head, theirs::kRead, remote, local, nbytes),
          Entry(MLX5_OPCODE_RDMA_READ).remote(remote.address, remote.key).pointer(element(nbytes)));
    constexpr std::uint32_t kDump = 0x23;  // not in mlx5dv.h
    check(theirs::dump(head, local, nbytes), Entry(kDump).pointer(element(nbytes)));
    check(theirs::notify(head, immediate),
          Entry(MLX5_OPCODE_RDMA_WRITE_IMM).immediate(htobe32(immediate)).remote(0, 0));
    check(theirs::fetch_add(head, remote, local, value), Entry(MLX5_OPCODE_ATOMIC_FA)
                                                             .remote(remote.address, remote.key)
                                                             .operands(value, 0)
                                                             .pointer(element(8)));
    check(theirs::compare_swap(head, remote, local, other, value),
          Entry(MLX5_OPCODE_ATOMIC_CS)
              .remote(remote.address, remote.key)
              .operands(value, other)
              .pointer(element(8)));
  }
}

TEST_CASE_FIXTURE(Entries, "data inline, of every size that fits") {
  std::array<std::byte, theirs::kMostInline> data;
  for (std::byte& byte : data) byte = number<std::byte>();
  for (std::uint32_t nbytes = 1; nbytes <= data.size(); ++nbytes) {
    check(theirs::write_inline(head, remote, data.data(), nbytes),
          Entry(MLX5_OPCODE_RDMA_WRITE)
              .remote(remote.address, remote.key)
              .inlined(std::span(data).first(nbytes)));
  }
}

TEST_CASE_FIXTURE(Entries, "flags stand where mlx5dv.h has them") {
  head.flags = theirs::kNone;
  check(theirs::nop(head), Entry(MLX5_OPCODE_NOP, 0));
  head.flags = theirs::kSignaled | theirs::kFence;
  check(theirs::nop(head), Entry(MLX5_OPCODE_NOP, MLX5_WQE_CTRL_CQ_UPDATE | MLX5_WQE_CTRL_FENCE));
  CHECK(theirs::doorbell_record(0x12345) == htobe32(0x2345));
}

TEST_CASE_FIXTURE(Entries, "completions, of every turn and state") {
  const auto last_of = [](const mlx5_cqe64& entry) {
    theirs::Completion found;
    std::memcpy(&found.last, reinterpret_cast<const std::byte*>(&entry) + 56, sizeof found.last);
    return found;
  };
  CHECK_FALSE(last_of(invalid_cqe()).is_there(0));
  CHECK_FALSE(last_of(invalid_cqe()).is_there(1));
  for (const bool owner : {false, true}) {
    ibv_wc good{};
    const auto done = last_of(encode_cqe(good, 0xabcd, owner));
    CHECK(done.is_there(owner ? 1 : 0));
    CHECK_FALSE(done.is_there(owner ? 2 : 1));
    CHECK(done.index() == 0xabcd);
    CHECK_FALSE(done.failed());
    good.status = IBV_WC_REM_ACCESS_ERR;
    CHECK(last_of(encode_cqe(good, 1, owner)).failed());
  }
}

// --- the codec: values in, values out ---

constexpr std::uint32_t kNumber = 0x123456;
constexpr std::uint16_t kIndex = 0xfedc;

struct Decoded : Wqe {
  explicit Decoded(std::span<const std::byte> blocks) {
    decode_wqe(blocks, kNumber, kIndex, *this);
  }
};

ibv_wc_status status_of(const Entry& entry) { return Decoded(entry.at(kIndex, kNumber)).status; }

Entry write_entry() {
  Entry entry(MLX5_OPCODE_RDMA_WRITE);
  return entry.remote(0x1122334455667788, 0x99aabbcc);
}

TEST_CASE("a write with pointers is decoded field by field") {
  Entry entry = write_entry();
  for (std::uint32_t i = 0; i < 3; ++i) entry.pointer({0xfedcba9876543210 + i, 100 + i, 7 + i});
  const auto bytes = entry.at(kIndex, kNumber);
  const Decoded found(bytes);
  REQUIRE(found.status == IBV_WC_SUCCESS);
  CHECK(found.work.wr_id == kIndex);
  CHECK(found.work.opcode == IBV_WR_RDMA_WRITE);
  CHECK(found.work.send_flags == IBV_SEND_SIGNALED);
  CHECK(found.work.wr.rdma.remote_addr == 0x1122334455667788);
  CHECK(found.work.wr.rdma.rkey == 0x99aabbcc);
  REQUIRE(found.work.num_sge == 3);
  for (std::uint32_t i = 0; i < 3; ++i) {
    CHECK(found.elements[i].addr == 0xfedcba9876543210 + i);
    CHECK(found.elements[i].length == 100 + i);
    CHECK(found.elements[i].lkey == 7 + i);
  }
  CHECK(wqe_blocks(std::span(bytes).first<kBlockBytes>()) == 2);
}

TEST_CASE("flags, immediate data and operands are decoded") {
  const auto flags = [](std::uint8_t bits) {
    return Decoded(Entry(MLX5_OPCODE_NOP, bits).at(kIndex, kNumber)).work.send_flags;
  };
  CHECK(flags(0) == 0);
  CHECK(flags(1 << 2) == 0);  // a completion only on error
  CHECK(flags(MLX5_WQE_CTRL_CQ_UPDATE) == IBV_SEND_SIGNALED);
  CHECK(flags(3 << 2) == IBV_SEND_SIGNALED);
  CHECK(flags(MLX5_WQE_CTRL_SOLICITED) == IBV_SEND_SOLICITED);
  CHECK(flags(MLX5_WQE_CTRL_FENCE) == IBV_SEND_FENCE);
  CHECK(flags(MLX5_WQE_CTRL_INITIATOR_SMALL_FENCE) == IBV_SEND_FENCE);

  Entry immediate(MLX5_OPCODE_RDMA_WRITE_IMM);
  const Decoded decoded(immediate.immediate(0x01020304).remote(1, 2).at(kIndex, kNumber));
  CHECK(decoded.work.opcode == IBV_WR_RDMA_WRITE_WITH_IMM);
  CHECK(decoded.work.imm_data == 0x01020304);

  const auto atomic = [](unsigned opcode) {
    Entry entry(opcode);
    entry.remote(64, 5).operands(10, 20).pointer({32, 8, 9});
    return Decoded(entry.at(kIndex, kNumber));
  };
  const Decoded swap = atomic(MLX5_OPCODE_ATOMIC_CS);
  CHECK(swap.work.opcode == IBV_WR_ATOMIC_CMP_AND_SWP);
  CHECK(swap.work.wr.atomic.compare_add == 20);
  CHECK(swap.work.wr.atomic.swap == 10);
  CHECK(swap.status == IBV_WC_SUCCESS);
  CHECK(swap.work.wr.atomic.remote_addr == 64);
  CHECK(swap.work.wr.atomic.rkey == 5);
  const Decoded add = atomic(MLX5_OPCODE_ATOMIC_FA);
  CHECK(add.work.opcode == IBV_WR_ATOMIC_FETCH_AND_ADD);
  CHECK(add.work.wr.atomic.compare_add == 10);
}

TEST_CASE("a message has no remote address, and may have immediate data") {
  Entry message(MLX5_OPCODE_SEND);
  const Decoded plain(message.pointer({32, 8, 9}).at(kIndex, kNumber));
  CHECK(plain.status == IBV_WC_SUCCESS);
  CHECK(plain.work.opcode == IBV_WR_SEND);
  REQUIRE(plain.work.num_sge == 1);
  CHECK(plain.work.sg_list[0].lkey == 9);
  Entry immediate(MLX5_OPCODE_SEND_IMM);
  const Decoded other(immediate.immediate(0x01020304).at(kIndex, kNumber));
  CHECK(other.work.opcode == IBV_WR_SEND_WITH_IMM);
  CHECK(other.work.imm_data == 0x01020304);
  CHECK(other.work.num_sge == 0);
}

TEST_CASE("inline data is found in the bytes of the entry") {
  const std::vector<std::byte> data(70, std::byte{0x5a});
  Entry entry = write_entry();
  const auto bytes =
      entry.inlined(data).inlined({}).inlined(std::span(data).first(3)).at(kIndex, kNumber);
  const Decoded found(bytes);
  REQUIRE(found.status == IBV_WC_SUCCESS);
  CHECK((found.work.send_flags & IBV_SEND_INLINE) != 0);
  REQUIRE(found.work.num_sge == 3);
  CHECK(found.elements[0].addr == reinterpret_cast<std::uint64_t>(&bytes[36]));
  CHECK(found.elements[0].length == 70);
  CHECK(found.elements[1].length == 0);
  CHECK(found.elements[2].length == 3);
  CHECK(found.elements[2].addr == reinterpret_cast<std::uint64_t>(&bytes[32 + 80 + 16 + 4]));
}

TEST_CASE("what no adapter carries out is refused with the status that an adapter gives") {
  CHECK(status_of(Entry(MLX5_OPCODE_UMR)) == IBV_WC_LOC_QP_OP_ERR);
  CHECK(status_of(Entry(0x7f)) == IBV_WC_LOC_QP_OP_ERR);
  CHECK(status_of(Entry(MLX5_OPCODE_RDMA_WRITE | 1u << 24)) == IBV_WC_LOC_QP_OP_ERR);  // modifier
  CHECK(status_of(Entry(MLX5_OPCODE_RDMA_WRITE)) == IBV_WC_LOC_QP_OP_ERR);
  CHECK(status_of(Entry(MLX5_OPCODE_ATOMIC_FA).remote(8, 1)) == IBV_WC_LOC_QP_OP_ERR);
  CHECK(status_of(write_entry().pointer({1, 0, 1})) == IBV_WC_LOC_LEN_ERR);  // 2 GiB
  CHECK(status_of(write_entry().pointer({1, 0x7fffffff, 1})) == IBV_WC_LOC_LEN_ERR);
  CHECK(status_of(write_entry().pointer({1, 1 << 30, 1}).pointer({1, 1, 1})) == IBV_WC_LOC_LEN_ERR);
  const std::byte data[4] = {};
  CHECK(status_of(write_entry().pointer({1, 8, 1}).inlined(data)) == IBV_WC_LOC_QP_OP_ERR);
  CHECK(status_of(write_entry().inlined(data).pointer({1, 8, 1})) == IBV_WC_LOC_QP_OP_ERR);

  const Entry good = write_entry().pointer({1, 8, 1});
  CHECK(status_of(good) == IBV_WC_SUCCESS);
  CHECK(Decoded(good.at(kIndex + 1, kNumber)).status == IBV_WC_LOC_QP_OP_ERR);
  CHECK(Decoded(good.at(kIndex, kNumber + 1)).status == IBV_WC_LOC_QP_OP_ERR);

  auto bytes = good.at(kIndex, kNumber);
  auto* control = reinterpret_cast<mlx5_wqe_ctrl_seg*>(bytes.data());
  control->qpn_ds = htobe32(kNumber << 8);
  CHECK(Decoded(bytes).status == IBV_WC_LOC_QP_OP_ERR);
  CHECK(wqe_blocks(std::span(bytes).first<kBlockBytes>()) == 1);
  control->qpn_ds = htobe32(kNumber << 8 | 5);  // more than was announced
  CHECK(Decoded(bytes).status == IBV_WC_LOC_QP_OP_ERR);
  control->qpn_ds = htobe32(kNumber << 8 | 63);
  CHECK(wqe_blocks(std::span(bytes).first<kBlockBytes>()) == 16);
}

TEST_CASE("inline data that claims more bytes than there are is refused") {
  const std::vector<std::byte> data(20);
  auto bytes = write_entry().inlined(data).at(kIndex, kNumber);
  for (const std::uint32_t count : {29u, 1000u, 0x7fffffffu}) {
    const std::uint32_t header = htobe32(count | std::uint32_t{MLX5_INLINE_SEG});
    std::memcpy(&bytes[32], &header, sizeof header);
    const Decoded found(bytes);
    CHECK(found.status != IBV_WC_SUCCESS);
    CHECK(found.work.num_sge == 0);
  }
}

TEST_CASE("no damaged entry makes the decoder look beyond it") {
  const auto sound = [](std::span<const std::byte> bytes) {
    const Decoded found(bytes);
    if (found.status != IBV_WC_SUCCESS) CHECK(found.work.num_sge == 0);
    REQUIRE(found.work.num_sge <= static_cast<int>(found.elements.size()));
    if ((found.work.send_flags & IBV_SEND_INLINE) == 0) return;
    for (int i = 0; i < found.work.num_sge; ++i) {
      const auto* at = reinterpret_cast<const std::byte*>(found.work.sg_list[i].addr);
      CHECK((at >= bytes.data() && at + found.work.sg_list[i].length <= &bytes.back() + 1));
    }
  };
  Entry inlined = write_entry();
  const std::vector<std::byte> data(100);
  for_each_bit_flip(inlined.inlined(data).inlined(data).at(kIndex, kNumber), sound);
  Entry pointers = write_entry();
  for (std::uint32_t i = 0; i < 61; ++i) pointers.pointer({i, 8, i});
  const auto largest = pointers.at(kIndex, kNumber);
  CHECK(Decoded(largest).work.num_sge == 61);
  for_each_bit_flip(largest, sound);
  for_each_bit_flip(Entry(MLX5_OPCODE_ATOMIC_CS)
                        .remote(0, 0)
                        .operands(0, 0)
                        .pointer({0, 8, 0})
                        .at(kIndex, kNumber),
                    sound);
}

TEST_CASE("completions are encoded field by field, and errors by their syndrome") {
  ibv_wc completion{};
  completion.opcode = IBV_WC_RDMA_READ;
  completion.qp_num = kNumber;
  completion.byte_len = 4000;
  const mlx5_cqe64 read = encode_cqe(completion, kIndex, true);
  CHECK(read.op_own == 0x01);
  CHECK(be16toh(read.wqe_counter) == kIndex);
  CHECK(be32toh(read.byte_cnt) == 4000);
  CHECK(be32toh(read.sop_drop_qpn) == (std::uint32_t{MLX5_OPCODE_RDMA_READ} << 24 | kNumber));
  CHECK(encode_cqe(completion, 0, false).op_own == 0x00);
  CHECK(invalid_cqe().op_own == 0xf0);

  const auto syndrome = [&](ibv_wc_status status) {
    completion.status = status;
    completion.vendor_err = 700;
    const auto error = std::bit_cast<mlx5_err_cqe>(encode_cqe(completion, kIndex, false));
    CHECK(error.op_own == MLX5_CQE_REQ_ERR << 4);
    CHECK(be16toh(error.wqe_counter) == kIndex);
    CHECK(error.vendor_err_synd == 255);
    return error.syndrome;
  };
  CHECK(syndrome(IBV_WC_LOC_LEN_ERR) == MLX5_CQE_SYNDROME_LOCAL_LENGTH_ERR);
  CHECK(syndrome(IBV_WC_LOC_QP_OP_ERR) == MLX5_CQE_SYNDROME_LOCAL_QP_OP_ERR);
  CHECK(syndrome(IBV_WC_LOC_PROT_ERR) == MLX5_CQE_SYNDROME_LOCAL_PROT_ERR);
  CHECK(syndrome(IBV_WC_WR_FLUSH_ERR) == MLX5_CQE_SYNDROME_WR_FLUSH_ERR);
  CHECK(syndrome(IBV_WC_REM_ACCESS_ERR) == MLX5_CQE_SYNDROME_REMOTE_ACCESS_ERR);
  CHECK(syndrome(IBV_WC_REM_INV_REQ_ERR) == MLX5_CQE_SYNDROME_REMOTE_INVAL_REQ_ERR);
  CHECK(syndrome(IBV_WC_REM_OP_ERR) == MLX5_CQE_SYNDROME_REMOTE_OP_ERR);
  CHECK(syndrome(IBV_WC_RETRY_EXC_ERR) == MLX5_CQE_SYNDROME_TRANSPORT_RETRY_EXC_ERR);
  CHECK(syndrome(IBV_WC_RNR_RETRY_EXC_ERR) == MLX5_CQE_SYNDROME_RNR_RETRY_EXC_ERR);
  CHECK(syndrome(IBV_WC_GENERAL_ERR) == 0xff);

  completion.opcode = IBV_WC_RECV;
  CHECK((encode_cqe(completion, 1, false).op_own >> 4) == MLX5_CQE_RESP_ERR);
  completion.status = IBV_WC_SUCCESS;
  CHECK((encode_cqe(completion, 1, false).op_own >> 4) == MLX5_CQE_RESP_SEND);
  completion.wc_flags = IBV_WC_WITH_IMM;
  CHECK((encode_cqe(completion, 1, false).op_own >> 4) == MLX5_CQE_RESP_SEND_IMM);
}

TEST_CASE("a ring of completions goes on when the 24-bit counter of its reader turns") {
  DirectCompletions ring(1, 4, nullptr);
  mlx5dv_cq direct{};
  ring.describe(direct);
  CompletionRing reader(direct);
  ibv_wc completion{};
  const auto push = [&] { return ring.push(completion); };
  std::uint32_t wrong = 0;
  for (std::uint32_t i = 0; i < (1u << 24) + 100; ++i) {
    completion.wr_id = i;
    if (!push()) ++wrong;
    const auto decoded = reader.poll();
    if (!decoded || decoded->index != (i & 0xffff)) ++wrong;
  }
  CHECK(wrong == 0);
  for (int i = 0; i < 4; ++i) CHECK(push());
  CHECK(!push());
  REQUIRE(reader.poll().has_value());
  CHECK(push());
  CHECK(!push());
}

}  // namespace
}  // namespace zerohop::testing
