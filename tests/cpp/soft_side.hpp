// One side of a soft0 connection for tests: device, protection domain, queues, a registered buffer
// and a queue pair, all through the verbs table and the inline calls of verbs.h, like any user.
#pragma once

#include <doctest/doctest.h>
#include <infiniband/verbs.h>
#include <poll.h>

#include <chrono>
#include <cstdlib>
#include <memory>
#include <string_view>
#include <vector>

#include "eventually.hpp"
#include "softhca/softhca.hpp"

namespace zerohop::testing {

using Clock = std::chrono::steady_clock;
constexpr std::chrono::seconds kPatience{20};  // for what must happen; a failing test ends then

// ZEROHOP_TEST_VERBS=libibverbs: its first device instead, which tests/mlx5 simulates.
inline bool on_libibverbs() {
  const char* named = std::getenv("ZEROHOP_TEST_VERBS");
  return named != nullptr && named == std::string_view("libibverbs");
}
inline const driver::Verbs& soft() {
  return on_libibverbs() ? *driver::libibverbs().verbs : *softhca::verbs();
}

inline ibv_context* open_soft0() {
  ibv_device** list = soft().get_device_list(nullptr);
  REQUIRE(list != nullptr);
  ibv_context* context = soft().open_device(list[0]);
  soft().free_device_list(list);
  REQUIRE(context != nullptr);
  return context;
}

struct Address {
  std::uint32_t number;
  std::uint32_t psn;
  ibv_gid gid;
};

struct SideOptions {
  int depth = 64;
  int sge = 4;
  int inline_bytes = 64;
  int completions = 512;
  std::size_t nbytes = 1 << 16;
  bool signal_all = false;
  int queue_pair_access =
      IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ | IBV_ACCESS_REMOTE_ATOMIC;
  int memory_access = IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ |
                      IBV_ACCESS_REMOTE_ATOMIC;
  int timeout = 14;
  int retries = 7;
  int rnr_retries = 7;
  int rnr_timer = 1;
  int reads = 16;
  bool events = false;
  ibv_srq* shared = nullptr;  // what its queue pair receives by
};

class Side {
 public:
  explicit Side(const SideOptions& chosen = {}, ibv_context* shared = nullptr)
      : options(chosen), owns_context(shared == nullptr) {
    context = owns_context ? open_soft0() : shared;
    pd = soft().alloc_pd(context);
    REQUIRE(pd != nullptr);
    if (options.events) channel = soft().create_comp_channel(context);
    cq = soft().create_cq(context, options.completions, this, channel, 0);
    REQUIRE(cq != nullptr);
    buffer = std::make_unique<std::byte[]>(options.nbytes);
    mr = soft().reg_mr(pd, buffer.get(), options.nbytes, options.memory_access);
    REQUIRE(mr != nullptr);
    create_queue_pair();
  }
  ~Side() {
    if (qp != nullptr) CHECK(soft().destroy_qp(qp) == 0);
    if (mr != nullptr) CHECK(soft().dereg_mr(mr) == 0);
    CHECK(soft().destroy_cq(cq) == 0);
    if (channel != nullptr) CHECK(soft().destroy_comp_channel(channel) == 0);
    CHECK(soft().dealloc_pd(pd) == 0);
    if (owns_context) CHECK(soft().close_device(context) == 0);
  }
  Side(const Side&) = delete;
  Side& operator=(const Side&) = delete;

  void create_queue_pair() {
    ibv_qp_init_attr init{};
    init.send_cq = init.recv_cq = cq;
    init.qp_type = IBV_QPT_RC;
    init.sq_sig_all = options.signal_all;
    init.srq = options.shared;
    init.cap = {static_cast<std::uint32_t>(options.depth),
                static_cast<std::uint32_t>(options.depth), static_cast<std::uint32_t>(options.sge),
                static_cast<std::uint32_t>(options.sge),
                static_cast<std::uint32_t>(options.inline_bytes)};
    qp = soft().create_qp(pd, &init);
    REQUIRE(qp != nullptr);
  }
  void destroy_queue_pair() {
    REQUIRE(soft().destroy_qp(qp) == 0);
    qp = nullptr;
  }
  void deregister() {
    REQUIRE(soft().dereg_mr(mr) == 0);
    mr = nullptr;
  }

  Address address() const {
    ibv_gid gid;
    REQUIRE(soft().query_gid(context, 1, 0, &gid) == 0);
    return {qp->qp_num, 0x1234u ^ (qp->qp_num >> 4), gid};
  }

  int try_init() {
    ibv_qp_attr attr{};
    attr.qp_state = IBV_QPS_INIT;
    attr.port_num = 1;
    attr.qp_access_flags = static_cast<unsigned>(options.queue_pair_access);
    return soft().modify_qp(qp, &attr,
                            IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_ACCESS_FLAGS);
  }
  int try_ready_to_receive(const Address& peer) {
    ibv_qp_attr attr{};
    attr.qp_state = IBV_QPS_RTR;
    attr.path_mtu = IBV_MTU_4096;
    attr.dest_qp_num = peer.number;
    attr.rq_psn = peer.psn;
    attr.max_dest_rd_atomic = static_cast<std::uint8_t>(options.reads);
    attr.min_rnr_timer = static_cast<std::uint8_t>(options.rnr_timer);
    attr.ah_attr.is_global = 1;
    attr.ah_attr.port_num = 1;
    attr.ah_attr.grh.dgid = peer.gid;
    return soft().modify_qp(qp, &attr,
                            IBV_QP_STATE | IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN |
                                IBV_QP_RQ_PSN | IBV_QP_MAX_DEST_RD_ATOMIC | IBV_QP_MIN_RNR_TIMER);
  }
  int try_ready_to_send() {
    ibv_qp_attr attr{};
    attr.qp_state = IBV_QPS_RTS;
    attr.timeout = static_cast<std::uint8_t>(options.timeout);
    attr.retry_cnt = static_cast<std::uint8_t>(options.retries);
    attr.rnr_retry = static_cast<std::uint8_t>(options.rnr_retries);
    attr.sq_psn = address().psn;
    attr.max_rd_atomic = static_cast<std::uint8_t>(options.reads);
    return soft().modify_qp(qp, &attr,
                            IBV_QP_STATE | IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY |
                                IBV_QP_SQ_PSN | IBV_QP_MAX_QP_RD_ATOMIC);
  }
  int try_state(ibv_qp_state state) {
    ibv_qp_attr attr{};
    attr.qp_state = state;
    return soft().modify_qp(qp, &attr, IBV_QP_STATE);
  }
  void connect(const Address& peer) {
    REQUIRE(try_init() == 0);
    REQUIRE(try_ready_to_receive(peer) == 0);
    REQUIRE(try_ready_to_send() == 0);
  }
  ibv_qp_state state() const {
    ibv_qp_attr attr;
    ibv_qp_init_attr init;
    REQUIRE(soft().query_qp(qp, &attr, IBV_QP_STATE, &init) == 0);
    return attr.qp_state;
  }

  ibv_sge sge(std::size_t offset, std::size_t nbytes) const {
    return {reinterpret_cast<std::uint64_t>(buffer.get()) + offset,
            static_cast<std::uint32_t>(nbytes), mr != nullptr ? mr->lkey : 0};
  }
  std::uint64_t at(std::size_t offset) const {
    return reinterpret_cast<std::uint64_t>(buffer.get()) + offset;
  }

  int try_receive(std::uint64_t id, std::vector<ibv_sge> elements) {
    ibv_recv_wr work{};
    work.wr_id = id;
    work.sg_list = elements.data();
    work.num_sge = static_cast<int>(elements.size());
    ibv_recv_wr* bad = nullptr;
    return options.shared != nullptr ? ibv_post_srq_recv(options.shared, &work, &bad)
                                     : ibv_post_recv(qp, &work, &bad);
  }
  void receive(std::uint64_t id, std::size_t offset = 0, std::size_t nbytes = 0) {
    std::vector<ibv_sge> elements;
    if (nbytes > 0) elements.push_back(sge(offset, nbytes));
    REQUIRE(try_receive(id, elements) == 0);
  }

  // Posts one request; `adjust` may change it first. Returns the result of ibv_post_send.
  template <typename Adjust>
  int post(ibv_wr_opcode opcode, std::uint64_t id, std::vector<ibv_sge> elements, Adjust adjust) {
    ibv_send_wr work{};
    work.wr_id = id;
    work.opcode = opcode;
    work.send_flags = IBV_SEND_SIGNALED;
    work.sg_list = elements.data();
    work.num_sge = static_cast<int>(elements.size());
    adjust(work);
    ibv_send_wr* bad = nullptr;
    return ibv_post_send(qp, &work, &bad);
  }
  int post_rdma(ibv_wr_opcode opcode, std::uint64_t id, ibv_sge local, std::uint64_t remote,
                std::uint32_t rkey, std::uint32_t immediate = 0) {
    return post(opcode, id, {local}, [&](ibv_send_wr& work) {
      work.wr.rdma.remote_addr = remote;
      work.wr.rdma.rkey = rkey;
      work.imm_data = immediate;
    });
  }
  // From this buffer to the peer's, or back.
  void rdma(ibv_wr_opcode opcode, std::uint64_t id, ibv_sge local, const Side& peer,
            std::size_t offset = 0) {
    REQUIRE(post_rdma(opcode, id, local, peer.at(offset), peer.mr->rkey) == 0);
  }
  int post_atomic(ibv_wr_opcode opcode, std::uint64_t id, ibv_sge local, std::uint64_t remote,
                  std::uint32_t rkey, std::uint64_t compare_add, std::uint64_t swap = 0) {
    return post(opcode, id, {local}, [&](ibv_send_wr& work) {
      work.wr.atomic.remote_addr = remote;
      work.wr.atomic.rkey = rkey;
      work.wr.atomic.compare_add = compare_add;
      work.wr.atomic.swap = swap;
    });
  }
  int post_message(std::uint64_t id, std::vector<ibv_sge> elements) {
    return post(IBV_WR_SEND, id, std::move(elements), [](ibv_send_wr&) {});
  }

  // The next completion; the test fails if none comes.
  ibv_wc wait() {
    ibv_wc completion{};
    const auto end = Clock::now() + kPatience;
    int count = 0;
    while (count == 0 && Clock::now() < end) count = ibv_poll_cq(cq, 1, &completion);
    REQUIRE(count == 1);
    return completion;
  }
  // The next asynchronous event, acknowledged.
  ibv_event_type next_event() {
    pollfd watched{context->async_fd, POLLIN, 0};
    const auto most = std::chrono::milliseconds(kPatience).count();
    REQUIRE(::poll(&watched, 1, static_cast<int>(most)) == 1);
    ibv_async_event event{};
    REQUIRE(soft().get_async_event(context, &event) == 0);
    soft().ack_async_event(&event);
    return event.event_type;
  }
  bool idle() {
    ibv_wc completion{};
    return ibv_poll_cq(cq, 1, &completion) == 0;
  }

  SideOptions options;
  bool owns_context;
  ibv_context* context = nullptr;
  ibv_pd* pd = nullptr;
  ibv_comp_channel* channel = nullptr;
  ibv_cq* cq = nullptr;
  std::unique_ptr<std::byte[]> buffer;
  ibv_mr* mr = nullptr;
  ibv_qp* qp = nullptr;
};

inline void connect(Side& a, Side& b) {
  const Address of_a = a.address();
  const Address of_b = b.address();
  a.connect(of_b);
  b.connect(of_a);
}

struct Pair {
  explicit Pair(const SideOptions& options = {}) : Pair(options, options) {}
  Pair(const SideOptions& of_a, const SideOptions& of_b) : a(of_a), b(of_b) { connect(a, b); }
  Side a;
  Side b;
};

}  // namespace zerohop::testing
