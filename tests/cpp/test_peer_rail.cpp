// A path over queue pairs whose peer is hand-made: how a sender learns which messages the receiver
// has consumed, and the reported effect of a failed transfer.
#include <doctest/doctest.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <cstring>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "couple.hpp"
#include "engine/core/device_choice.hpp"
#include "engine/path/verbs/peer_rail.hpp"
#include "forger.hpp"

namespace zerohop::testing {
namespace {

using namespace engine;

// --- credits ---

constexpr std::uint32_t kSlots = 4;  // of the liar
constexpr std::uint32_t kSlot = 7;   // of the board, for the liar's notifications

TEST_CASE("a dialogue needs no writes for its credits: the messages bring them") {
  constexpr std::uint32_t kRounds = 1000;
  Couple couple;
  for (std::uint32_t round = 1; round <= kRounds; ++round) {
    couple.to_right->notify({1, round});
    REQUIRE(couple.right.wait_notify(1, 1, true, soon()).second == round);
    couple.to_left->notify({2, round});
    REQUIRE(couple.left.wait_notify(2, 1, true, soon()).second == round);
  }
  CHECK(couple.to_right->rails().at(0)->stats().work_requests.load() == kRounds);
  CHECK(couple.to_left->rails().at(0)->stats().work_requests.load() == kRounds);
}

TEST_CASE("a long one-way stream gets its credits from writes, few of them") {
  constexpr std::uint32_t kCount = 10'000;
  Couple couple;
  for (std::uint32_t value = 1; value < kCount; ++value) couple.to_right->notify({1, value});
  finish(couple.to_right->notify({2, kCount}));
  // Acknowledged when it is in the receiver's memory, counted when the receiver polls.
  REQUIRE(couple.right.wait_notify(2, 1, true, soon()).second == kCount);
  CHECK(couple.to_left->rails().at(0)->stats().notifications_in.load() == kCount);
  CHECK(couple.to_right->rails().at(0)->stats().work_requests.load() == kCount);
  const std::uint64_t credits = couple.to_left->rails().at(0)->stats().work_requests.load();
  const MessageWindow window;
  CHECK(credits >= kCount / window.slots);
  CHECK(credits <= kCount / window.credit_every());
}

// The other end of a path: a bare queue pair that can send anything.
class Liar {
 public:
  Liar()
      : device_(open_device("soft0")),
        domain_(rdma::ProtectionDomain::create(device_)),
        queue_(rdma::CompletionQueue::create(device_, 64)),
        region_(rdma::MemoryRegion::create(domain_, slots_.data(), slots_.size(),
                                           IBV_ACCESS_LOCAL_WRITE)),
        queue_pair_(rdma::QueuePair::create(domain_, queue_, queue_)) {
    queue_pair_->to_init();
    for (int i = 0; i < 32; ++i) post_receive();
  }

  RailTerms terms() const {
    return {.queue_pair = queue_pair_->address(), .receive_slots = kSlots, .slot_nbytes = 4096};
  }
  void connect(const RailTerms& remote) { queue_pair_->connect(remote.queue_pair); }

  void say(const Message& message) {
    ibv_send_wr request{};
    ibv_sge element{reinterpret_cast<std::uint64_t>(&message), sizeof message, 0};
    request.opcode = IBV_WR_SEND;
    request.send_flags = IBV_SEND_INLINE;
    post(request, element);
  }

  void say_eager() {
    slots_ = {};
    const Message message{
        .kind = MessageKind::eager, .tag = 1, .nbytes = slots_.size() - sizeof message};
    std::memcpy(slots_.data(), &message, sizeof message);
    ibv_send_wr request{};
    ibv_sge element{reinterpret_cast<std::uint64_t>(slots_.data()),
                    static_cast<std::uint32_t>(slots_.size()), region_->lkey()};
    request.opcode = IBV_WR_SEND;
    request.send_flags = IBV_SEND_SIGNALED;
    post(request, element);
    ibv_wc completion{};
    while (queue_->poll({&completion, 1}) == 0) std::this_thread::yield();
  }

  void write_credits(std::uint32_t taken) {
    ibv_send_wr request{};
    ibv_sge element{};
    request.opcode = IBV_WR_RDMA_WRITE_WITH_IMM;
    request.imm_data = __builtin_bswap32(taken);
    request.num_sge = 0;
    post(request, element, 0);
  }

 private:
  void post(ibv_send_wr& request, ibv_sge& element, int elements = 1) {
    request.sg_list = &element;
    request.num_sge = elements;
    ibv_send_wr* bad = nullptr;
    REQUIRE(queue_pair_->post_send(request, &bad) == 0);
  }

  void post_receive() {
    ibv_sge element{reinterpret_cast<std::uint64_t>(slots_.data()),
                    static_cast<std::uint32_t>(slots_.size()), region_->lkey()};
    ibv_recv_wr request{};
    request.sg_list = &element;
    request.num_sge = 1;
    ibv_recv_wr* bad = nullptr;
    REQUIRE(queue_pair_->post_receive(request, &bad) == 0);
  }

  std::array<std::byte, 16384> slots_{};
  std::shared_ptr<rdma::Device> device_;
  std::shared_ptr<rdma::ProtectionDomain> domain_;
  std::shared_ptr<rdma::CompletionQueue> queue_;
  std::shared_ptr<rdma::MemoryRegion> region_;
  std::unique_ptr<rdma::QueuePair> queue_pair_;
};

// A normal notification, except for the number of messages that its sender claims to have consumed.
Message claim(std::uint32_t taken) {
  return {.kind = MessageKind::notify,
          .taken = static_cast<std::uint16_t>(taken),
          .value = 1,
          .tag = kSlot};
}

RailServices soft_services() {
  RailServices services;
  auto device = open_device("soft0");
  services.rail =
      std::make_shared<Rail>(0, rdma::ProtectionDomain::create(device), "it was asked for");
  services.poller =
      std::make_shared<Poller>(Poller::Devices{device}, std::chrono::microseconds(200), nullptr);
  services.board = std::make_shared<Board>();
  services.receives.push_back(
      ReceivePool::create(*services.rail, services.messages, *services.poller));
  return services;
}

// A path whose peer is a Liar.
struct Deceived {
  explicit Deceived(bool connects = true) {
    path =
        PeerRail::create(services, std::make_shared<RailGroup>("liar"), [this] { broken = true; });
    if (!connects) return;
    liar.connect(path->terms());
    path->connect(liar.terms());
  }
  ~Deceived() {
    path->close([](Effect effect) { return Failure{.message = "closed", .effect = effect}; });
  }

  std::shared_ptr<Transfer> notify() {
    auto transfer = std::make_shared<Transfer>(services.poller, 0, nullptr);
    Job job(transfer, IBV_WR_RDMA_WRITE);
    job.then({.kind = MessageKind::notify, .value = 1, .tag = 1});
    path->submit(std::move(job), soon());
    return transfer;
  }
  template <typename Ready>
  bool wait(Ready ready) {
    return services.poller->wait(ready, soon());
  }

  RailServices services = soft_services();
  Liar liar;
  std::atomic<bool> broken{false};
  std::shared_ptr<PeerRail> path;
};

TEST_CASE("terms that no message fits, or that the counts of messages do not reach, are refused") {
  constexpr std::uint32_t kLeast = sizeof(Message) + MessageWindow::kLeastBytes;
  struct Case {
    std::uint32_t slots, nbytes;
    bool good;
  };
  constexpr Case kCases[] = {
      {1, kLeast, true},      {MessageWindow::kMostSlots, UINT32_MAX, true},
      {0, kLeast, false},     {MessageWindow::kMostSlots + 1, kLeast, false},
      {UINT32_MAX, 0, false}, {1, kLeast - 1, false},
  };
  for (const Case& one : kCases) {
    CAPTURE(one.slots);
    CAPTURE(one.nbytes);
    Deceived end(/*connects=*/false);
    RailTerms terms = end.liar.terms();
    terms.receive_slots = one.slots;
    terms.slot_nbytes = one.nbytes;
    end.liar.connect(end.path->terms());
    if (one.good) {
      end.path->connect(terms);
      CHECK(end.path->eager_limit() ==
            std::min(one.nbytes - std::uint32_t{sizeof(Message)}, MessageWindow{}.nbytes));
    } else {
      CHECK_THROWS_AS(end.path->connect(terms), ProtocolError);
    }
  }
}

// As many messages as the liar has slots for are in flight, and one more waits.
std::shared_ptr<Transfer> fill(Deceived& end) {
  std::shared_ptr<Transfer> last;
  for (std::uint32_t i = 0; i < kSlots; ++i) last = end.notify();
  REQUIRE(end.wait([&] { return last->done(); }));
  auto waiting = end.notify();
  CHECK_FALSE(waiting->done());
  return waiting;
}

TEST_CASE("credits let a waiting message go, in a message as in a write") {
  for (const bool in_message : {true, false}) {
    CAPTURE(in_message);
    Deceived end;
    const auto waiting = fill(end);
    in_message ? end.liar.say(claim(1)) : end.liar.write_credits(1);
    REQUIRE(end.wait([&] { return waiting->done(); }));
    (void)waiting->result();
    CHECK(end.services.board->peek(kSlot) == (in_message ? 1 : 0));
    CHECK_FALSE(end.broken);
  }
}

TEST_CASE("a peer that claims to have taken what was not sent is refused") {
  const std::uint32_t backwards = 0u - 1;
  for (const std::uint32_t taken : {kSlots + 1, 1000u, backwards}) {
    for (const bool in_message : {true, false}) {
      CAPTURE(taken);
      CAPTURE(in_message);
      Deceived end;
      const auto waiting = fill(end);
      in_message ? end.liar.say(claim(taken)) : end.liar.write_credits(taken);
      REQUIRE(end.wait([&] { return end.broken.load(); }));
      REQUIRE(waiting->done());
      const std::string cause = message_of<VerbsError>([&] { (void)waiting->result(); });
      CHECK(contains(cause, "it acknowledges more messages than were sent"));
      CHECK(end.services.board->peek(kSlot) == 0);
    }
  }
}

TEST_CASE("a peer that sends without credit is refused, once messages wait for a recv") {
  Deceived end;
  std::uint32_t said = 0;
  const auto drained = [&] { return end.path->stats().messages_in.load() >= said; };
  while (!end.broken && said < 10'000) {
    for (int i = 0; i < 32; ++i, ++said) end.liar.say_eager();
    end.wait([&] { return end.broken.load() || drained(); });
  }
  CHECK(end.broken);
  CHECK(contains(end.path->trouble(), "it exceeds its credits"));
}

TEST_CASE("more messages than there are buffers wait at their senders") {
  constexpr std::uint32_t kPeers = 20;
  RailServices services = soft_services();
  std::vector<std::unique_ptr<Liar>> senders;
  std::vector<std::shared_ptr<PeerRail>> paths;
  for (std::uint32_t i = 0; i < kPeers; ++i) {
    paths.push_back(PeerRail::create(services, std::make_shared<RailGroup>("sender"), [] {}));
    senders.push_back(std::make_unique<Liar>());
    senders.back()->connect(paths.back()->terms());
    paths.back()->connect(senders.back()->terms());
  }
  const MessageWindow window;
  REQUIRE(kPeers * window.slots > ReceivePool::kMost);
  for (std::uint32_t n = 0; n < window.slots; ++n) {
    for (const auto& sender : senders) sender->say(claim(0));
  }
  for (const auto& path : paths) {
    const auto all = [&] { return path->stats().messages_in.load() == window.slots; };
    CHECK(services.poller->wait(all, soon()));
    path->close([](Effect effect) { return Failure{.message = "closed", .effect = effect}; });
  }
  CHECK(services.receives.front()->nbytes() <= ReceivePool::kMost * window.slot_nbytes());
}

// --- effects: nothing, some or all may have been written ---

// A path of the engine whose peer is hand-made, and two writes in flight.
class Writer {
 public:
  explicit Writer(std::size_t nbytes) : bytes_(nbytes) {
    path_ = PeerRail::create(services_, std::make_shared<RailGroup>("forger"),
                             [this] { broken_.store(true); });
    const rdma::QueuePairAddress own = path_->terms().queue_pair;
    const Forger forger({own.number, own.psn, own.gid});
    rdma::QueuePairAddress other = own;
    other.number = forger.number;
    other.psn = forger.psn;
    other.gid = forger.gid;
    terms_ = {.queue_pair = other, .receive_slots = 32, .slot_nbytes = 4096};
    path_->connect(terms_);
    connection_ = forger.enter();
    region_ = rdma::MemoryRegion::create(services_.rail->domain(), bytes_.data(), nbytes,
                                         IBV_ACCESS_LOCAL_WRITE);
    refused_ = write();
    behind_ = write();
  }
  ~Writer() {
    path_->close([](Effect effect) { return Failure{.message = "closed", .effect = effect}; });
  }

  // The owner refuses the first write.
  void refuse(wire::Refusal why) {
    Frame frame;
    wire::Packet packet = packet_of(wire::Op::refused);
    packet.detail = static_cast<std::uint16_t>(why);
    frame.add(packet);
    frame.send(connection_);
  }

  // The owner can reconnect: the refusal was not the last thing it did.
  void reconnect() {
    REQUIRE(services_.poller->wait([this] { return broken_.load(); }, soon()));
    path_->renew();
    path_->connect(terms_);
  }

  VerbsError error_of_refused() { return failure_of<VerbsError>(refused_); }
  VerbsError error_of_the_one_behind() { return failure_of<VerbsError>(behind_); }

 private:
  std::shared_ptr<Transfer> write() {
    auto transfer = std::make_shared<Transfer>(services_.poller, bytes_.size(), nullptr);
    const Layout local =
        Layout::bytes(reinterpret_cast<std::uint64_t>(bytes_.data()), bytes_.size());
    Job job(transfer, IBV_WR_RDMA_WRITE);
    job.add({.local = local, .remote = local, .lkey = region_->lkey(), .rkey = 4711});
    path_->submit(std::move(job), soon());
    return transfer;
  }

  std::vector<std::byte> bytes_;
  RailServices services_ = soft_services();
  std::atomic<bool> broken_{false};
  std::shared_ptr<PeerRail> path_;
  RailTerms terms_;
  UniqueFd connection_;
  std::shared_ptr<rdma::MemoryRegion> region_;
  std::shared_ptr<Transfer> refused_;
  std::shared_ptr<Transfer> behind_;
};

TEST_CASE(
    "a refused write of one packet has written nothing, unless its owner could not finish it") {
  struct Row {
    std::size_t nbytes;
    wire::Refusal why;
    ibv_wc_status status;
    Effect effect;
  };
  const Row rows[] = {
      {4096, wire::Refusal::access, IBV_WC_REM_ACCESS_ERR, Effect::nothing},
      {4096, wire::Refusal::operation, IBV_WC_REM_OP_ERR, Effect::some},
      {4097, wire::Refusal::access, IBV_WC_REM_ACCESS_ERR, Effect::some},  // two packets
      {4097, wire::Refusal::operation, IBV_WC_REM_OP_ERR, Effect::some},
  };
  for (const Row& row : rows) {
    CAPTURE(row.nbytes);
    CAPTURE(row.status);
    Writer writer(row.nbytes);
    writer.refuse(row.why);
    writer.reconnect();
    const VerbsError refused = writer.error_of_refused();
    CHECK(refused.code() == row.status);
    CHECK(refused.effect() == row.effect);
    const VerbsError behind = writer.error_of_the_one_behind();
    CHECK(behind.code() == IBV_WC_WR_FLUSH_ERR);
    CHECK(behind.effect() == Effect::nothing);
  }
}

}  // namespace
}  // namespace zerohop::testing
