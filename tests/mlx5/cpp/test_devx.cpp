// Queues in memory of the program's choice: made by DEVX of libmlx5, driven by CPU threads.
#include <dlfcn.h>
#include <doctest/doctest.h>
#include <sys/mman.h>
#include <unistd.h>

#include <array>
#include <bit>
#include <cerrno>
#include <utility>
#include <vector>

#include "direct_side.hpp"
#include "prm.hpp"

namespace zerohop::testing {
namespace {

namespace prm = mlx5sim::prm;

template <typename Function>
Function* in_libmlx5(const char* name) {
  void* library = ::dlopen("libmlx5.so.1", RTLD_NOW | RTLD_LOCAL);
  REQUIRE(library != nullptr);
  void* found = ::dlsym(library, name);
  REQUIRE(found != nullptr);
  return reinterpret_cast<Function*>(found);
}
#define MLX5(function) in_libmlx5<decltype(::function)>(#function)

using Bytes = std::vector<std::byte>;

struct Command {
  explicit Command(prm::Command opcode, std::size_t nbytes = 0x120) : bytes(nbytes) {
    prm::set(bytes, prm::kOpcode, opcode);
  }
  Command& with(prm::Field field, std::uint64_t value) {
    prm::set(bytes, field, value);
    return *this;
  }
  Bytes bytes;
};

std::uint32_t answered(const Bytes& answer) {
  return static_cast<std::uint32_t>(prm::get(answer, prm::kNumber));
}

// Two pages, or as many as that: the rings first, then the records.
class Memory {
 public:
  enum class Kind { own, buffer };  // buffer: a memfd, in place of a dma-buf

  Memory(ibv_context* context, Kind kind, std::size_t rings)
      : records_at((rings + 63) / 64 * 64), nbytes((records_at + 128 + 4095) / 4096 * 4096) {
    if (kind == Kind::buffer) {
      fd = ::memfd_create("test", MFD_CLOEXEC);
      REQUIRE(::ftruncate(fd, static_cast<off_t>(nbytes)) == 0);
    }
    const int flags = kind == Kind::own ? MAP_PRIVATE | MAP_ANONYMOUS : MAP_SHARED;
    void* mapped = ::mmap(nullptr, nbytes, PROT_READ | PROT_WRITE, flags, fd, 0);
    REQUIRE(mapped != MAP_FAILED);
    at = static_cast<std::byte*>(mapped);
    mlx5dv_devx_umem_in asked{};
    asked.addr = kind == Kind::own ? mapped : nullptr;
    asked.size = nbytes;
    asked.access = IBV_ACCESS_LOCAL_WRITE;
    asked.pgsz_bitmap = ~std::uint64_t{4095};
    asked.comp_mask = kind == Kind::own ? 0 : MLX5DV_UMEM_MASK_DMABUF;
    asked.dmabuf_fd = fd;
    umem = MLX5(mlx5dv_devx_umem_reg_ex)(context, &asked);
    REQUIRE(umem != nullptr);
  }
  ~Memory() {
    CHECK(MLX5(mlx5dv_devx_umem_dereg)(umem) == 0);
    ::munmap(at, nbytes);
    if (fd >= 0) ::close(fd);
  }
  Memory(const Memory&) = delete;
  Memory& operator=(const Memory&) = delete;

  std::uint32_t number() const { return umem->umem_id; }
  // A record of two words.
  __be32* record(std::size_t index) const {
    return reinterpret_cast<__be32*>(at + records_at + index * 64);
  }

  const std::size_t records_at;
  const std::size_t nbytes;
  int fd = -1;
  std::byte* at = nullptr;
  mlx5dv_devx_umem* umem = nullptr;
};

constexpr std::uint32_t kLogBlocks = 4;
constexpr std::uint32_t kLogCompletions = 3;
constexpr std::size_t kRingBytes = (std::size_t{64} << kLogBlocks) + (64u << kLogCompletions);

// A completion queue and a queue pair behind `side`'s own, which is not used.
struct DevxSide {
  explicit DevxSide(Memory::Kind kind, bool collapsed = false)
      : memory(side.context, kind, kRingBytes) {
    page = MLX5(mlx5dv_devx_alloc_uar)(side.context, MLX5DV_UAR_ALLOC_TYPE_BF);
    REQUIRE(page != nullptr);
    std::uint32_t eqn = 0;
    REQUIRE(MLX5(mlx5dv_devx_query_eqn)(side.context, 0, &eqn) == 0);
    make_cq(collapsed, eqn);
    make_qp();
  }
  ~DevxSide() {
    if (qp != nullptr) CHECK(MLX5(mlx5dv_devx_obj_destroy)(qp) == 0);
    if (cq != nullptr) CHECK(MLX5(mlx5dv_devx_obj_destroy)(cq) == 0);
    MLX5(mlx5dv_devx_free_uar)(page);
  }
  DevxSide(const DevxSide&) = delete;
  DevxSide& operator=(const DevxSide&) = delete;

  mlx5dv_devx_obj* make(const Command& command, std::uint32_t& named) {
    Bytes answer(64);
    auto* made = MLX5(mlx5dv_devx_obj_create)(side.context, command.bytes.data(),
                                              command.bytes.size(), answer.data(), answer.size());
    named = answered(answer);
    return made;
  }
  void make_cq(bool collapsed, std::uint32_t eqn) {
    std::byte* ring = memory.at + (64u << kLogBlocks);
    for (std::uint32_t i = 0; i < 1u << kLogCompletions; ++i) {
      ring[i * 64 + 63] = std::byte{MLX5_CQE_INVALID << 4 | 1};
    }
    Command command(prm::kCreateCq);
    command.with(prm::cq::kEqn, eqn);
    command.with(prm::cq::kLogSize, kLogCompletions).with(prm::cq::kCollapsed, collapsed);
    command.with(prm::cq::kIsUmem, 1).with(prm::cq::kUmem, memory.number());
    command.with(prm::cq::kUmemOffset, 64u << kLogBlocks).with(prm::cq::kRecordIsUmem, 1);
    command.with(prm::cq::kRecordUmem, memory.number());
    command.with(prm::cq::kRecordOffset, memory.records_at);
    cq = make(command, cq_number);
    REQUIRE(cq != nullptr);
    shown_cq.buf = ring;
    shown_cq.dbrec = memory.record(0);
    shown_cq.cqe_cnt = 1u << kLogCompletions;
    shown_cq.cqe_size = 64;
  }
  Command qp_command() const {
    mlx5dv_pd pd{};
    mlx5dv_obj objects{};
    objects.pd = {side.pd, &pd};
    REQUIRE(mlx5().init_obj(&objects, MLX5DV_OBJ_PD) == 0);
    Command command(prm::kCreateQp);
    command.with(prm::qp::kPd, pd.pdn).with(prm::qp::kLogSends, kLogBlocks);
    command.with(prm::qp::kPage, page->page_id).with(prm::qp::kSendCq, cq_number);
    command.with(prm::qp::kReceiveType, prm::qp::kNoReceives).with(prm::qp::kIsUmem, 1);
    command.with(prm::qp::kUmem, memory.number()).with(prm::qp::kRecordIsUmem, 1);
    command.with(prm::qp::kRecordUmem, memory.number());
    return command.with(prm::qp::kRecordOffset, memory.records_at + 64);
  }
  void make_qp() {
    qp = make(qp_command(), number);
    REQUIRE(qp != nullptr);
    shown_qp.sq.buf = memory.at;
    shown_qp.sq.wqe_cnt = 1u << kLogBlocks;
    shown_qp.sq.stride = 64;
    shown_qp.dbrec = memory.record(1);
    shown_qp.bf.reg = page->reg_addr;
  }
  int change(Command& command) {
    command.with(prm::kNumber, number);
    Bytes answer(16);
    return MLX5(mlx5dv_devx_obj_modify)(qp, command.bytes.data(), command.bytes.size(),
                                        answer.data(), answer.size());
  }
  std::uint64_t state() {
    Command command(prm::kQueryQp, 16);
    command.with(prm::kNumber, number);
    Bytes answer(0x120);
    REQUIRE(MLX5(mlx5dv_devx_obj_query)(qp, command.bytes.data(), command.bytes.size(),
                                        answer.data(), answer.size()) == 0);
    return prm::get(answer, prm::qp::kState);
  }
  void to_init() {
    Command init(prm::kRstToInit);
    init.with(prm::qp::kMigration, prm::qp::kMigrated).with(prm::qp::kPort, 1);
    init.with(prm::qp::kRemoteRead, 1).with(prm::qp::kRemoteWrite, 1);
    REQUIRE(change(init) == 0);
  }
  static Command path_command(const Address& peer) {
    Command receive(prm::kInitToRtr);
    std::array<std::uint64_t, 2> gid;
    std::memcpy(gid.data(), peer.gid.raw, sizeof gid);
    receive.with(prm::qp::kMtu, IBV_MTU_4096).with(prm::qp::kRemoteNumber, peer.number);
    receive.with(prm::qp::kLogMostMessage, 30).with(prm::qp::kPort, 1);
    receive.with(prm::qp::kReceivePsn, peer.psn).with(prm::qp::kLogReadsIn, 4);
    receive.with(prm::qp::kMinRnrNak, 1).with(prm::qp::kRemoteGidHigh, be64toh(gid[0]));
    receive.with(prm::qp::kRemoteGidLow, be64toh(gid[1]));
    receive.with(prm::qp::kHopLimit, 64).with(prm::qp::kUdpSourcePort, 0xc000);
    receive.with(prm::qp::kTrafficClass, 0x6a).with(prm::qp::kDscp, 0x6a >> 2);
    // As the simulation makes it of a GID.
    receive.with(prm::qp::kRemoteMacHigh, 0x0200);
    return receive.with(prm::qp::kRemoteMacLow, be64toh(gid[1]) & 0xffffffff);
  }
  void connect(const Address& peer) {
    to_init();
    Command receive = path_command(peer);
    REQUIRE(change(receive) == 0);
    Command send(prm::kRtrToRts);
    send.with(prm::qp::kAckTimeout, 14).with(prm::qp::kRetryCount, 7).with(prm::qp::kRnrRetry, 7);
    send.with(prm::qp::kSendPsn, address().psn).with(prm::qp::kLogReadsOut, 4);
    REQUIRE(change(send) == 0);
  }
  Address address() const {
    Address own = side.address();
    own.number = number;
    return own;
  }

  Side side;
  Memory memory;
  mlx5dv_devx_uar* page = nullptr;
  mlx5dv_devx_obj* cq = nullptr;
  mlx5dv_devx_obj* qp = nullptr;
  std::uint32_t cq_number = 0;
  std::uint32_t number = 0;
  mlx5dv_cq shown_cq{};
  mlx5dv_qp shown_qp{};
};

struct Pair2 {
  explicit Pair2(Memory::Kind kind, bool collapsed = false) : a(kind, collapsed) {
    const Address of_b = b.address();
    b.connect(a.address());
    a.connect(of_b);
  }
  Entry write(std::size_t offset, std::size_t nbytes) {
    Entry entry(MLX5_OPCODE_RDMA_WRITE);
    return entry.remote(b.at(offset), b.mr->rkey).pointer(a.side.sge(offset, nbytes));
  }
  DevxSide a;
  Side b;
  SendRing sends{a.shown_qp, a.number};
  CompletionRing completions{a.shown_cq};
};

TEST_CASE("DEVX: queues in the program's memory, or in a buffer's, turn many times") {
  if (!on_libibverbs()) return;  // soft0 places queues by a call of its own
  for (const auto kind : {Memory::Kind::own, Memory::Kind::buffer}) {
    Pair2 pair(kind);
    CHECK(pair.a.state() == IBV_QPS_RTS);
    for (unsigned round = 0; round < 100; ++round) {
      fill(pair.a.side, 0, 600, round);
      const std::uint32_t index = pair.sends.post(pair.write(0, 600));
      const Completion completion = pair.completions.wait();
      CHECK(completion.opcode == MLX5_CQE_REQ);
      CHECK(completion.index == (index & 0xffff));
      CHECK(completion.qp_number == pair.a.number);
      REQUIRE(is_filled(pair.b, 0, 600, round));
    }
  }
}

TEST_CASE("DEVX: a collapsed completion queue has one place, which names the last entry") {
  if (!on_libibverbs()) return;
  Pair2 pair(Memory::Kind::own, /*collapsed=*/true);
  const auto last = [&] {
    const auto* entry = static_cast<const mlx5_cqe64*>(pair.a.shown_cq.buf);
    auto& counter = const_cast<__be16&>(entry->wqe_counter);
    return be16toh(std::atomic_ref(counter).load(std::memory_order_acquire));
  };
  std::uint32_t index = 0;
  for (int i = 0; i < 40; ++i) {
    index = pair.sends.post(pair.write(0, 64));
    CHECK(eventually([&] { return last() == (index & 0xffff); }));
  }
}

TEST_CASE("DEVX: what an adapter refuses") {
  if (!on_libibverbs()) return;
  DevxSide side(Memory::Kind::own);
  std::uint32_t number = 0;
  Command beyond = side.qp_command();
  CHECK(side.make(beyond.with(prm::qp::kUmemOffset, 1 << 20), number) == nullptr);
  Command nowhere = side.qp_command();
  CHECK(side.make(nowhere.with(prm::qp::kUmem, 999), number) == nullptr);
  Command without = side.qp_command();
  CHECK(side.make(without.with(prm::qp::kIsUmem, 0), number) == nullptr);
  CHECK(errno == EREMOTEIO);  // of the firmware
  Command early(prm::kRtrToRts);
  CHECK(side.change(early) != 0);
  CHECK(side.state() == IBV_QPS_RESET);
  CHECK(MLX5(mlx5dv_devx_umem_dereg)(side.memory.umem) == EBUSY);
  Bytes answer(64);
  Command unknown(prm::kToError);
  CHECK(MLX5(mlx5dv_devx_general_cmd)(side.side.context, unknown.bytes.data(), 64, answer.data(),
                                      answer.size()) == EREMOTEIO);
}

TEST_CASE("DEVX: an adapter refuses a path that leads nowhere") {
  if (!on_libibverbs()) return;
  DevxSide side(Memory::Kind::own);
  side.to_init();
  const Side other;
  const Address peer = other.address();
  constexpr std::pair<prm::Field, std::uint64_t> kWrong[] = {
      {prm::qp::kLogMostMessage, 0},  {prm::qp::kLogMostMessage, 31}, {prm::qp::kPort, 2},
      {prm::qp::kRemoteMacLow, 1},    {prm::qp::kHopLimit, 0},        {prm::qp::kDscp, 1},
      {prm::qp::kUdpSourcePort, 4791}};
  for (const auto& [field, value] : kWrong) {
    Command wrong = side.path_command(peer);
    CAPTURE(field.at);
    CHECK(side.change(wrong.with(field, value)) == EREMOTEIO);
    CHECK(side.state() == IBV_QPS_INIT);
  }
  Command right = side.path_command(peer);
  CHECK(side.change(right) == 0);
}

}  // namespace
}  // namespace zerohop::testing
