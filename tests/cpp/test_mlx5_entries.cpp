// Entries that kernels write into mlx5 queues, compared byte for byte with the structures of
// rdma-core's mlx5dv.h, and with how the software HCA decodes them.
#include <random>

#include "direct_side.hpp"
#include "softhca/cqe.hpp"
#include "softhca/wqe.hpp"
#include "zerohop/mlx5.h"

namespace zerohop::testing {
namespace {

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
    softhca::Wqe decoded;
    softhca::decode_wqe(bytes, head.queue_pair, static_cast<std::uint16_t>(head.index), decoded);
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
  CHECK_FALSE(last_of(softhca::invalid_cqe()).is_there(0));
  CHECK_FALSE(last_of(softhca::invalid_cqe()).is_there(1));
  for (const bool owner : {false, true}) {
    ibv_wc good{};
    const auto done = last_of(softhca::encode_cqe(good, 0xabcd, owner));
    CHECK(done.is_there(owner ? 1 : 0));
    CHECK_FALSE(done.is_there(owner ? 2 : 1));
    CHECK(done.index() == 0xabcd);
    CHECK_FALSE(done.failed());
    good.status = IBV_WC_REM_ACCESS_ERR;
    CHECK(last_of(softhca::encode_cqe(good, 1, owner)).failed());
  }
}

}  // namespace
}  // namespace zerohop::testing
