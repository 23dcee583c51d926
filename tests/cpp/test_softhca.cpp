// soft0: what its device reports, grants and registers, the state machine of its queue pairs, and
// which of them connect. Each operation by itself: tests/contract/test_verbs_operations.py.
#include <arpa/inet.h>
#include <doctest/doctest.h>
#include <netinet/tcp.h>
#include <sys/mman.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <filesystem>
#include <set>
#include <string>
#include <utility>

#include "base/error.hpp"
#include "soft_side.hpp"
#include "softhca/gid.hpp"

namespace zerohop::testing {
namespace {

// --- the device ---

TEST_CASE("what is in use cannot be destroyed") {
  Side side({.events = true});
  CHECK(soft().dealloc_pd(side.pd) == EBUSY);
  CHECK(soft().destroy_cq(side.cq) == EBUSY);
  CHECK(soft().destroy_comp_channel(side.channel) == EBUSY);
  CHECK(soft().close_device(side.context) == EBUSY);
}

TEST_CASE("devices are found by interface and address") {
  using softhca::canonical_name;
  CHECK(canonical_name("soft0") == "soft0");
  CHECK(canonical_name("soft0@lo") == "soft0");
  CHECK(canonical_name("soft0@127.0.0.1") == "soft0");
  CHECK_THROWS_AS(canonical_name("soft0@nowhere7"), zerohop::VerbsError);
  int count = 0;
  ibv_device** list = soft().get_device_list(&count);
  REQUIRE(count >= 1);
  CHECK(std::string(soft().get_device_name(list[0])) == "soft0");
  CHECK(list[count] == nullptr);
  for (int i = 0; i < count; ++i) {
    CHECK(canonical_name(soft().get_device_name(list[i])) == soft().get_device_name(list[i]));
  }
  soft().free_device_list(list);
}

TEST_CASE("queue pairs are granted what they ask, or refused") {
  Side side;
  ibv_qp_init_attr init{};
  init.send_cq = init.recv_cq = side.cq;
  init.qp_type = IBV_QPT_UD;
  CHECK(soft().create_qp(side.pd, &init) == nullptr);
  CHECK(errno == EOPNOTSUPP);
  init.qp_type = IBV_QPT_RC;
  init.cap = {100000, 1, 1, 1, 0};
  CHECK(soft().create_qp(side.pd, &init) == nullptr);
  CHECK(errno == EINVAL);
  init.cap = {100, 50, 3, 2, 200};
  ibv_qp* qp = soft().create_qp(side.pd, &init);
  REQUIRE(qp != nullptr);
  CHECK(init.cap.max_send_wr >= 100);
  CHECK(init.cap.max_inline_data >= 200);
  CHECK(soft().destroy_qp(qp) == 0);
}

// --- memory ---

TEST_CASE("only memory that exists, and only with rights that it gives, can be registered") {
  Side side;
  const auto page = static_cast<std::size_t>(::sysconf(_SC_PAGESIZE));
  void* memory = ::mmap(nullptr, 3 * page, PROT_READ, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  REQUIRE(memory != MAP_FAILED);
  const auto error = [&](void* address, std::size_t nbytes, int access) {
    errno = 0;
    ibv_mr* mr = soft().reg_mr(side.pd, address, nbytes, access);
    if (mr == nullptr) return errno;
    CHECK(soft().dereg_mr(mr) == 0);
    return 0;
  };
  CHECK(error(memory, 3 * page, 0) == 0);
  CHECK(error(memory, 3 * page, IBV_ACCESS_LOCAL_WRITE) == EFAULT);
  CHECK(error(memory, 0, 0) == EINVAL);
  CHECK(error(memory, page, IBV_ACCESS_REMOTE_WRITE) == EINVAL);
  CHECK(error(memory, page, IBV_ACCESS_REMOTE_READ | IBV_ACCESS_RELAXED_ORDERING) == 0);
  CHECK(error(memory, page, IBV_ACCESS_MW_BIND) == EOPNOTSUPP);
  ::munmap(static_cast<std::byte*>(memory) + page, page);
  CHECK(error(memory, 3 * page, 0) == EFAULT);
  ::munmap(memory, 3 * page);
}

TEST_CASE("a region may be addressed by a virtual address of its own, or of a mappable file") {
  Pair pair;
  std::byte memory[256] = {};
  ibv_mr* own = soft().reg_mr_iova2(pair.b.pd, memory, sizeof memory, 0x1000000,
                                    static_cast<unsigned>(pair.b.options.memory_access));
  REQUIRE(own != nullptr);
  pair.a.buffer[0] = std::byte{42};
  REQUIRE(pair.a.post_rdma(IBV_WR_RDMA_WRITE, 1, pair.a.sge(0, 1), 0x1000000 + 200, own->rkey) ==
          0);
  CHECK(pair.a.wait().status == IBV_WC_SUCCESS);
  CHECK(memory[200] == std::byte{42});
  CHECK(soft().dereg_mr(own) == 0);

  const int fd = ::memfd_create("dmabuf", MFD_CLOEXEC);
  REQUIRE(::ftruncate(fd, 20000) == 0);
  ibv_mr* file =
      soft().reg_dmabuf_mr(pair.b.pd, 5000, 15000, 0x50, fd, pair.b.options.memory_access);
  REQUIRE(file != nullptr);
  REQUIRE(pair.a.post_rdma(IBV_WR_RDMA_WRITE, 1, pair.a.sge(0, 1), 0x50 + 7000, file->rkey) == 0);
  CHECK(pair.a.wait().status == IBV_WC_SUCCESS);
  CHECK(soft().dereg_mr(file) == 0);
  std::byte seen{};
  CHECK(::pread(fd, &seen, 1, 12000) == 1);
  CHECK(seen == std::byte{42});
  ::close(fd);
  CHECK(soft().reg_dmabuf_mr(pair.b.pd, 0, 4096, 0, -1, 0) == nullptr);
  CHECK(errno == EBADF);
}

// --- states ---

constexpr int kInit = IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_ACCESS_FLAGS;

constexpr int kReceive = IBV_QP_STATE | IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN |
                         IBV_QP_RQ_PSN | IBV_QP_MAX_DEST_RD_ATOMIC | IBV_QP_MIN_RNR_TIMER;

constexpr int kSend = IBV_QP_STATE | IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY |
                      IBV_QP_SQ_PSN | IBV_QP_MAX_QP_RD_ATOMIC;

// Attributes with which every existing transition succeeds.
ibv_qp_attr attributes_for(const Side& peer, ibv_qp_state state) {
  ibv_qp_attr attr{};
  attr.qp_state = state;
  attr.port_num = 1;
  attr.path_mtu = IBV_MTU_1024;
  attr.dest_qp_num = peer.address().number;
  attr.rq_psn = peer.address().psn;
  attr.ah_attr.is_global = 1;
  attr.ah_attr.port_num = 1;
  attr.ah_attr.grh.dgid = peer.address().gid;
  return attr;
}

int mask_for(ibv_qp_state state) {
  switch (state) {
    case IBV_QPS_INIT: return kInit;
    case IBV_QPS_RTR: return kReceive;
    case IBV_QPS_RTS: return kSend;
    default: return IBV_QP_STATE;
  }
}

int move_to(Side& side, const Side& peer, ibv_qp_state state, int mask) {
  ibv_qp_attr attr = attributes_for(peer, state);
  attr.sq_psn = side.address().psn;
  return soft().modify_qp(side.qp, &attr, mask);
}

void bring_to(Side& side, const Side& peer, ibv_qp_state state) {
  REQUIRE(move_to(side, peer, IBV_QPS_RESET, IBV_QP_STATE) == 0);
  for (const ibv_qp_state step : {IBV_QPS_INIT, IBV_QPS_RTR, IBV_QPS_RTS}) {
    if (state == IBV_QPS_RESET || state == IBV_QPS_ERR || side.state() == state) break;
    REQUIRE(move_to(side, peer, step, mask_for(step)) == 0);
  }
  if (state == IBV_QPS_ERR) REQUIRE(move_to(side, peer, IBV_QPS_ERR, IBV_QP_STATE) == 0);
}

TEST_CASE("only the transitions of the specification exist") {
  Side side;
  Side peer;
  const ibv_qp_state states[] = {IBV_QPS_RESET, IBV_QPS_INIT, IBV_QPS_RTR,
                                 IBV_QPS_RTS,   IBV_QPS_SQD,  IBV_QPS_ERR};
  const std::set<std::pair<int, int>> legal = {{IBV_QPS_RESET, IBV_QPS_INIT},
                                               {IBV_QPS_INIT, IBV_QPS_INIT},
                                               {IBV_QPS_INIT, IBV_QPS_RTR},
                                               {IBV_QPS_RTR, IBV_QPS_RTS}};
  for (const ibv_qp_state from : states) {
    if (from == IBV_QPS_SQD) continue;  // cannot be reached
    for (const ibv_qp_state to : states) {
      CAPTURE(from);
      CAPTURE(to);
      bring_to(side, peer, from);
      const bool allowed = to == IBV_QPS_RESET || to == IBV_QPS_ERR || legal.contains({from, to});
      CHECK(move_to(side, peer, to, mask_for(to)) == (allowed ? 0 : EINVAL));
      CHECK(side.state() == (allowed ? to : from));
    }
  }
}

TEST_CASE("each required attribute is required, and no foreign one is taken") {
  Side side;
  Side peer;
  const std::pair<ibv_qp_state, ibv_qp_state> steps[] = {
      {IBV_QPS_RESET, IBV_QPS_INIT}, {IBV_QPS_INIT, IBV_QPS_RTR}, {IBV_QPS_RTR, IBV_QPS_RTS}};
  for (const auto& [from, to] : steps) {
    bring_to(side, peer, from);
    const int mask = mask_for(to);
    for (int bit = 1; bit < (1 << 21); bit <<= 1) {
      CAPTURE(to);
      CAPTURE(bit);
      if (bit == IBV_QP_STATE || (mask & bit) == 0) continue;
      CHECK(move_to(side, peer, to, mask & ~bit) == EINVAL);
      CHECK(side.state() == from);
    }
    CHECK(move_to(side, peer, to, mask | IBV_QP_QKEY) == EINVAL);
    CHECK(move_to(side, peer, to, mask | IBV_QP_ALT_PATH) == EINVAL);
  }
}

TEST_CASE("values that the device cannot serve are refused") {
  Side side;
  Side peer;
  const auto refused = [&](ibv_qp_state state, auto change) {
    ibv_qp_attr attr = attributes_for(peer, state);
    change(attr);
    return soft().modify_qp(side.qp, &attr, mask_for(state)) == EINVAL;
  };
  CHECK(refused(IBV_QPS_INIT, [](ibv_qp_attr& attr) { attr.port_num = 2; }));
  CHECK(refused(IBV_QPS_INIT, [](ibv_qp_attr& attr) { attr.pkey_index = 1; }));
  bring_to(side, peer, IBV_QPS_INIT);
  CHECK(refused(IBV_QPS_RTR, [](ibv_qp_attr& attr) { attr.ah_attr.grh.dgid.raw[0] = 0xfe; }));
  CHECK(refused(IBV_QPS_RTR, [](ibv_qp_attr& attr) { attr.ah_attr.is_global = 0; }));
  CHECK(refused(IBV_QPS_RTR, [](ibv_qp_attr& attr) { attr.ah_attr.grh.sgid_index = 1; }));
  CHECK(refused(IBV_QPS_RTR, [](ibv_qp_attr& attr) { attr.max_dest_rd_atomic = 17; }));
  CHECK(refused(IBV_QPS_RTR, [](ibv_qp_attr& attr) { attr.min_rnr_timer = 32; }));
  CHECK(refused(IBV_QPS_RTR, [](ibv_qp_attr& attr) { attr.path_mtu = static_cast<ibv_mtu>(6); }));
  bring_to(side, peer, IBV_QPS_RTR);
  CHECK(refused(IBV_QPS_RTS, [](ibv_qp_attr& attr) { attr.max_rd_atomic = 17; }));
  CHECK(refused(IBV_QPS_RTS, [](ibv_qp_attr& attr) { attr.retry_cnt = 8; }));
  CHECK(refused(IBV_QPS_RTS, [](ibv_qp_attr& attr) { attr.rnr_retry = 8; }));
  CHECK(refused(IBV_QPS_RTS, [](ibv_qp_attr& attr) { attr.timeout = 32; }));
  CHECK(side.state() == IBV_QPS_RTR);
}

TEST_CASE("posting needs the right state") {
  Side side;
  Side peer;
  for (const ibv_qp_state state : {IBV_QPS_RESET, IBV_QPS_INIT, IBV_QPS_RTR}) {
    bring_to(side, peer, state);
    CHECK(side.post_message(1, {}) == EINVAL);
    CHECK(side.try_receive(1, {}) == (state == IBV_QPS_RESET ? EINVAL : 0));
  }
}

// --- connections: in any order, again after a reset, and no others ---

ibv_gid gid_of(const char* address) {
  sockaddr_in where{};
  ::inet_pton(AF_INET, address, &where.sin_addr);
  return softhca::make_gid(where);
}

// TCP connections of this process.
std::set<std::string> congestion_controls() {
  std::set<std::string> names;
  for (const auto& entry : std::filesystem::directory_iterator("/proc/self/fd")) {
    const int fd = std::stoi(entry.path().filename());
    tcp_info info{};
    socklen_t size = sizeof info;
    if (::getsockopt(fd, IPPROTO_TCP, TCP_INFO, &info, &size) != 0) continue;
    if (info.tcpi_state != TCP_ESTABLISHED) continue;
    char name[16] = {};
    size = sizeof name - 1;
    REQUIRE(::getsockopt(fd, IPPROTO_TCP, TCP_CONGESTION, name, &size) == 0);
    names.insert(name);
  }
  return names;
}

// One of the two, which has the higher or the lower GID, and the other.
std::pair<Side&, Side&> sorted(Side& a, Side& b, bool higher) {
  const bool swapped = (std::memcmp(a.address().gid.raw, b.address().gid.raw, 16) < 0) == higher;
  return swapped ? std::pair<Side&, Side&>(b, a) : std::pair<Side&, Side&>(a, b);
}

TEST_CASE("a queue pair that stays in RTR serves its peer") {
  for (const bool higher : {false, true}) {  // either side may be the one that dials
    Side first, second;
    const auto [passive, active] = sorted(first, second, higher);
    REQUIRE(passive.try_init() == 0);
    REQUIRE(passive.try_ready_to_receive(active.address()) == 0);
    active.connect(passive.address());
    passive.receive(1, 0, 8);
    REQUIRE(active.post_message(2, {active.sge(0, 8)}) == 0);
    CHECK(passive.wait().wr_id == 1);
    CHECK(active.wait().status == IBV_WC_SUCCESS);
  }
}

TEST_CASE("a reset queue pair forgets its work and connects again, however soon") {
  Pair pair;
  for (int round = 0; round < 30; ++round) {  // mostly before the previous connection is complete
    pair.a.receive(1);
    pair.b.receive(2);
    for (Side* side : {&pair.a, &pair.b}) {
      REQUIRE(side->try_state(IBV_QPS_RESET) == 0);
      CHECK(side->idle());
    }
    connect(pair.a, pair.b);
  }
  pair.b.receive(3, 0, 8);
  REQUIRE(pair.a.post_message(4, {pair.a.sge(0, 8)}) == 0);
  CHECK(pair.b.wait().wr_id == 3);
  CHECK(pair.a.wait().wr_id == 4);
}

TEST_CASE("two queue pairs of one device reach each other") {
  ibv_context* context = open_soft0();
  {
    Side a({}, context);
    Side b({}, context);
    connect(a, b);
    b.receive(3, 0, 8);
    REQUIRE(a.post_message(4, {a.sge(0, 8)}) == 0);
    CHECK(b.wait().wr_id == 3);
    CHECK(a.wait().wr_id == 4);
  }
  CHECK(soft().close_device(context) == 0);
}

TEST_CASE("a wrong packet sequence number keeps the two apart") {
  Side a({.timeout = 1, .retries = 0});
  Side b;
  Address wrong = b.address();
  wrong.psn ^= 1;
  b.connect(a.address());
  REQUIRE(a.try_init() == 0);
  REQUIRE(a.try_ready_to_receive(wrong) == 0);
  // The refusal may come before the last step is taken, or after.
  if (a.try_ready_to_send() == 0) {
    REQUIRE(a.post_message(1, {a.sge(0, 8)}) == 0);
    CHECK(a.wait().status == IBV_WC_RETRY_EXC_ERR);
  }
  CHECK(a.state() == IBV_QPS_ERR);
}

TEST_CASE("a peer with another packet sequence number is disconnected when the own one is known") {
  for (const bool higher : {false, true}) {
    Side first, second;
    const auto [passive, active] = sorted(first, second, higher);
    Address wrong = passive.address();
    wrong.psn ^= 1;
    REQUIRE(passive.try_init() == 0);
    REQUIRE(passive.try_ready_to_receive(active.address()) == 0);
    active.connect(wrong);
    active.receive(5);
    active.rdma(IBV_WR_RDMA_WRITE, 1, active.sge(0, 8), passive);
    CHECK(active.wait().status == IBV_WC_SUCCESS);
    REQUIRE(passive.try_ready_to_send() == 0);
    const ibv_wc completion = active.wait();
    CHECK(completion.wr_id == 5);
    CHECK(completion.status == IBV_WC_WR_FLUSH_ERR);
  }
}

TEST_CASE("a queue pair is not connected to itself") {
  Side side;
  REQUIRE(side.try_init() == 0);
  CHECK(side.try_ready_to_receive(side.address()) == EINVAL);
  CHECK(side.state() == IBV_QPS_INIT);
}

TEST_CASE("connections inside a host are not paced") {
  Pair pair;
  pair.b.receive(1, 0, 8);
  REQUIRE(pair.a.post_message(2, {pair.a.sge(0, 8)}) == 0);
  CHECK(pair.b.wait().wr_id == 1);
  CHECK(congestion_controls() == std::set<std::string>{"reno"});
}

TEST_CASE("ports are on one host when they share an address, or are on its loopback") {
  using softhca::on_one_host;
  CHECK(on_one_host(gid_of("192.0.2.1"), gid_of("192.0.2.1")));
  CHECK(on_one_host(gid_of("127.0.0.1"), gid_of("127.0.0.2")));
  CHECK_FALSE(on_one_host(gid_of("192.0.2.1"), gid_of("192.0.2.2")));
  CHECK_FALSE(on_one_host(gid_of("127.0.0.1"), gid_of("192.0.2.2")));
}

}  // namespace
}  // namespace zerohop::testing
