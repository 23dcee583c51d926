// Long copies to several Peers: one that cannot continue delays only its own Peer's.
#include <doctest/doctest.h>

#include <atomic>
#include <future>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include "couple.hpp"
#include "eventually.hpp"
#include "shm/hazards.hpp"

using namespace zerohop;
using namespace zerohop::engine;
using namespace zerohop::testing;

namespace {

constexpr std::int64_t kNbytes = 5'000'000;  // more than is copied within the call, or at once

EndpointOptions near(const char* name) {
  EndpointOptions chosen = options(name);
  chosen.p2p = true;
  return chosen;
}

struct Far {
  Far(Endpoint& from, const char* name)
      : endpoint(near(name)), to(from.connect(endpoint.address().to_bytes(), soon())) {}
  engine::TransferPtr write(const Memory& source, std::optional<Notification> notify = {}) const {
    const Peer::Pair pair{&source, &there};
    return to->write({&pair, 1}, {.notify = notify, .require = "p2p", .timeout = {}});
  }

  Endpoint endpoint;
  std::shared_ptr<Peer> to;
  Memory memory = endpoint.empty(std::span(&kNbytes, 1), DType::parse("uint8"));
  RemoteMemory there = memory.remote();
};

// Threads of this process that access a Peer's memory, as many as may at once.
class Crowd {
 public:
  explicit Crowd(Peer& peer) {
    const auto session =
        peer.neighbour()->reach_board({.seconds = kTimeout, .insists = true}).session;
    REQUIRE(session);
    for (std::size_t i = 0; i < shm::Hazards::kClaims; ++i) {
      threads_.emplace_back([this, session] {
        (void)session->at_board([this](std::byte*) noexcept {
          ++there_;
          leave_.wait();
        });
      });
    }
    REQUIRE(eventually([this] { return there_ == shm::Hazards::kClaims; }));
  }
  ~Crowd() { disperse(); }
  void disperse() {
    if (threads_.empty()) return;
    told_.set_value();
    for (std::thread& thread : threads_) thread.join();
    threads_.clear();
  }

 private:
  std::promise<void> told_;
  std::shared_future<void> leave_ = told_.get_future().share();
  std::atomic<std::size_t> there_{0};
  std::vector<std::thread> threads_;
};

TEST_CASE("long copies to one Peer go on while those to another cannot") {
  Endpoint left(near("left"));
  const Far a(left, "a");
  const Far b(left, "b");
  const Memory source = left.empty(std::span(&kNbytes, 1), DType::parse("uint8"));
  REQUIRE(a.write(source)->wait(soon()));
  REQUIRE(b.write(source)->wait(soon()));

  std::mutex mutex;
  std::string ended;  // whose copy ended, in order
  const auto tell = [&](char name) {
    return [&, name] {
      const std::lock_guard lock(mutex);
      ended += name;
    };
  };
  Crowd crowd(*a.to);
  const auto first = a.write(source);
  first->on_done(tell('1'));
  const auto second = a.write(source);
  second->on_done(tell('2'));
  const auto other = b.write(source, Notification{1, 7});
  other->on_done(tell('b'));
  REQUIRE(other->wait(soon()));
  (void)other->result();
  CHECK(b.endpoint.peek_notify(1) == 7);
  crowd.disperse();
  REQUIRE(second->wait(soon()));
  CHECK(first->done());
  const std::lock_guard lock(mutex);
  CHECK(ended == "b12");
}

}  // namespace
