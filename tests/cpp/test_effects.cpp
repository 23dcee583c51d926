// The reported effect of a failed transfer: nothing, some or all may have been written.
#include <doctest/doctest.h>

#include <atomic>
#include <memory>
#include <vector>

#include "base/error.hpp"
#include "couple.hpp"
#include "engine/core/device_choice.hpp"
#include "engine/path/verbs/verbs_path.hpp"
#include "forger.hpp"

namespace zerohop::testing {
namespace {

// A path of the engine whose peer is hand-made, and two writes in flight.
class Writer {
 public:
  explicit Writer(std::size_t nbytes) : bytes_(nbytes) {
    auto device = engine::open_device("soft0");
    services_.rail = std::make_shared<engine::Rail>(0, rdma::ProtectionDomain::create(device),
                                                    "it was asked for");
    services_.poller = std::make_shared<engine::Poller>(engine::Poller::Devices{device},
                                                        std::chrono::microseconds(200), nullptr);
    services_.board = std::make_shared<engine::Board>();
    services_.receives.push_back(
        engine::ReceivePool::create(*services_.rail, services_.messages, *services_.poller));
    path_ = engine::VerbsPath::create(services_, std::make_shared<engine::PathGroup>("forger"),
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

  VerbsError error_of_refused() { return error_of(*refused_); }
  VerbsError error_of_the_one_behind() { return error_of(*behind_); }

 private:
  std::shared_ptr<engine::Transfer> write() {
    auto transfer = std::make_shared<engine::Transfer>(services_.poller, bytes_.size(), nullptr);
    const std::int64_t count = static_cast<std::int64_t>(bytes_.size());
    const Layout local = Layout::contiguous(reinterpret_cast<std::uint64_t>(bytes_.data()),
                                            DType::parse("uint8"), {&count, 1});
    engine::Job job(transfer, IBV_WR_RDMA_WRITE);
    job.add({.local = local, .remote = local, .lkey = region_->lkey(), .rkey = 4711});
    path_->submit(std::move(job), soon());
    return transfer;
  }

  static VerbsError error_of(engine::Transfer& transfer) {
    REQUIRE(transfer.wait(soon()));
    try {
      (void)transfer.result();
    } catch (const VerbsError& error) {
      return error;
    }
    FAIL("nothing was thrown");
    return VerbsError("");
  }

  std::vector<std::byte> bytes_;
  engine::PathServices services_;
  std::atomic<bool> broken_{false};
  std::shared_ptr<engine::VerbsPath> path_;
  engine::PathTerms terms_;
  UniqueFd connection_;
  std::shared_ptr<rdma::MemoryRegion> region_;
  std::shared_ptr<engine::Transfer> refused_;
  std::shared_ptr<engine::Transfer> behind_;
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
