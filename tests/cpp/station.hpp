// A standalone Control, with its Peers on soft0, and who connects to it by hand.
#pragma once

#include <doctest/doctest.h>

#include <atomic>
#include <cerrno>
#include <chrono>
#include <cstdint>
#include <cstring>
#include <memory>
#include <string>

#include "../fuzz/stranger.hpp"
#include "couple.hpp"
#include "engine/control/control.hpp"
#include "softhca/softhca.hpp"

namespace zerohop::testing {

inline std::atomic<bool> queue_pairs_refused{false};
inline std::atomic<bool> driver_hangs{false};
inline std::atomic<int> waiting_in_driver{0};

inline void pass_driver() {
  ++waiting_in_driver;
  driver_hangs.wait(true);
  --waiting_in_driver;
}

// soft0, made to refuse queue pairs, or to take long to create them and to register memory.
inline std::shared_ptr<rdma::Device> open_device_that_may_refuse() {
  auto verbs = std::make_shared<driver::Verbs>(*softhca::verbs());
  verbs->reg_mr = [](ibv_pd* pd, void* address, std::size_t nbytes, int access) {
    pass_driver();
    return softhca::verbs()->reg_mr(pd, address, nbytes, access);
  };
  verbs->reg_mr_iova2 = nullptr;
  verbs->create_qp = [](ibv_pd* pd, ibv_qp_init_attr* init) -> ibv_qp* {
    pass_driver();
    if (!queue_pairs_refused.load()) return softhca::verbs()->create_qp(pd, init);
    errno = ENOMEM;
    return nullptr;
  };
  return rdma::Device::open(std::move(verbs), "soft0");
}

// Its peers can be created only while `broken` is null.
class Station {
 public:
  Station() {
    auto device = open_device_that_may_refuse();
    rails_.push_back(std::make_shared<engine::Rail>(0, rdma::ProtectionDomain::create(device),
                                                    "it was asked for"));
    services_.poller = std::make_shared<engine::Poller>(engine::Poller::Devices{device},
                                                        std::chrono::microseconds(200), nullptr);
    services_.board = std::make_shared<engine::Board>();
    services_.receives.push_back(
        engine::ReceivePool::create(*rails_.front(), services_.messages, *services_.poller));
    address.name = "station";
    address.host = "127.0.0.1";
    control = engine::Control::start(
        address, key, rails_, services_.poller,
        [this](const std::weak_ptr<engine::Control>& weak, engine::Peer::Identity identity) {
          if (broken.load() != nullptr) broken.load()();
          return engine::Peer::create(std::make_shared<const engine::Peer::Host>(host(weak)),
                                      services_, std::move(identity));
        },
        nullptr, std::make_shared<std::atomic<std::uint32_t>>(0), drivers_);
  }
  ~Station() {
    control->stop();
    CHECK(drivers_->stop(soon()));  // creates this one's peers
  }

  // The end of an attempt that must fail within `seconds`.
  std::string failure(const std::shared_ptr<engine::Attempt>& attempt, double seconds) {
    REQUIRE(services_.poller->wait([&] { return attempt->done.is(); }, within(seconds)));
    REQUIRE(attempt->error);
    return attempt->error->message;
  }
  engine::Poller& poller() { return *services_.poller; }

  const std::shared_ptr<const engine::EndpointKey> key = std::make_shared<engine::EndpointKey>();
  engine::Address address = key->address();
  std::atomic<void (*)()> broken{nullptr};
  std::shared_ptr<engine::Control> control;

 private:
  engine::Peer::Host host(const std::weak_ptr<engine::Control>& weak) {
    return {.own_id = address.id,
            .rails = rails_,
            .default_timeout = kTimeout,
            .neighbourhood = {},
            .no_neighbourhood = {},
            .copy_queue = {},
            .books = std::make_shared<engine::RouteBooks>(),
            .registrations = std::make_shared<engine::HostRegistrations>(
                rails_, nullptr, std::make_shared<engine::LiveRegions>()),
            .sends = std::make_shared<engine::SendPool>(rails_, services_.messages.nbytes),
            .staged_memories = nullptr,
            .stager = nullptr,
            .checker = nullptr,
            .streams = {},
            .tell = [](const std::shared_ptr<engine::Peer>&, engine::ControlMessage) {},
            .repair =
                [weak](const std::shared_ptr<engine::Peer>& peer, engine::RailIndex rail) {
                  if (auto alive = weak.lock()) alive->repair(peer, rail);
                },
            .disconnect = [](const std::shared_ptr<engine::Peer>&) {},
            .look = [] {},
            .cuda = {}};
  }

  const std::shared_ptr<Executor> drivers_ = engine::Control::make_drivers();
  engine::Rails rails_;
  engine::RailServices services_;
};

// Knows the secret, and sends a Hello with a queue pair that does not exist.
struct Newcomer : fuzz::Stranger {
  explicit Newcomer(const engine::Address& to) : Stranger(dial(to)) {}

  void greet() {
    engine::Hello hello;
    hello.id = id();
    hello.name = "newcomer";
    hello.queue_pairs.push_back(queue_pair());
    hello.receive_slots = 64;
    hello.slot_nbytes = 8192;
    hello.established = 0xffff;  // never yields
    Stranger::greet(hello);
  }
  // Becomes a peer.
  void enter() {
    greet();
    await<engine::Hello>();
    say(engine::Ready{});
  }
  // Reads until so many messages of that kind have arrived.
  template <typename Message>
  void await(std::size_t count = 1) {
    const auto all = [&] {
      std::size_t heard = 0;
      return find<Message>([&](const auto&) { return ++heard == count; }) != nullptr;
    };
    hear_until(all);
    REQUIRE(all());
  }

  // Below every GID of soft0 on this host: the lower one of two ends dials, which this never does.
  static rdma::QueuePairAddress queue_pair() {
    rdma::QueuePairAddress address;
    address.number = 0x4711;
    address.mtu = IBV_MTU_4096;
    address.reads_in = address.reads_out = 16;
    const std::uint8_t gid[16] = {0xfd, 'z', 'h', 1, 0, 0, 0, 0, 0, 0, 0, 127, 0, 0, 1, 9};
    std::memcpy(address.gid.raw, gid, sizeof gid);
    return address;
  }
};

}  // namespace zerohop::testing
