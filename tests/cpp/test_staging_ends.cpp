// Closing, hangs and errors during staged transfers: nothing is released that a copy may still use,
// and nothing waits without end.
#include <atomic>
#include <future>
#include <thread>
#include <vector>

#include "base/error.hpp"
#include "softhca/softhca.hpp"
#include "staged_couple.hpp"

namespace zerohop::testing {
namespace {

std::string error_of(const engine::TransferPtr& transfer) {
  REQUIRE(transfer->wait(soon()));
  return message_of<Error>([&] { (void)transfer->result(); });
}

// Makes the copies of a GPU hang, for its lifetime.
class Hang {
 public:
  explicit Hang(FakeCuda& cuda) : cuda_(cuda) { begin(); }
  ~Hang() { end(); }
  Hang(const Hang&) = delete;
  Hang& operator=(const Hang&) = delete;

  void begin() { cuda_.copies.hangs = true; }
  void end() { cuda_.copies.hangs = false; }
  void await_copies() const {
    while (cuda_.copies.waiting() == 0) std::this_thread::yield();
  }

 private:
  FakeCuda& cuda_;
};

TEST_CASE_FIXTURE(StagedCouple, "a GPU that hangs is an error in time, and mends when it goes on") {
  const Memory near = host_array(left, {100000});
  const Memory far = gpu_array(right, {100000});
  Hang hang(cuda);
  CHECK(contains(error_of(write(*to_right, near, far.remote())), "REM_OP_ERR"));
  const std::string next = error_of(write(*to_right, near, far.remote()));
  CHECK(contains(next, "REM_OP_ERR"));
  hang.end();
  while (cuda.copies.waiting() > 0) std::this_thread::yield();  // it polls now and then
  const Bytes bytes = counted(100000, 3);
  put(near, bytes);
  finish(write(*to_right, near, far.remote()));
  CHECK(get(far) == bytes);
  finish(to_right->notify({1, 1}));
}

TEST_CASE_FIXTURE(StagedCouple, "memory stays as long as a copy that was given up may reach it") {
  std::atomic<bool> released = false;
  constexpr std::int64_t kNbytes = 50000;
  const Layout layout =
      Layout::contiguous(cuda.add_bytes(kNbytes), kByte, std::vector<std::int64_t>{kNbytes});
  std::shared_ptr<void> owner(nullptr, [&](void*) { released = true; });
  Memory near =
      left.register_memory(layout, std::move(owner), {.writable = true, .device = "cuda:0"});
  const Memory host = host_array(right, {kNbytes});
  Hang hang(cuda);
  SUBCASE("by write()") {
    CHECK(contains(error_of(write(*to_right, near, host.remote())), "CUDA_ERROR_FAKE"));
  }
  SUBCASE("by recv()") {
    const auto sent = to_left->send(host, 1);
    CHECK(contains(error_of(to_right->receive(near, 1)), "CUDA_ERROR_FAKE"));
    CHECK(contains(error_of(sent), "REM_OP_ERR"));
  }
  near.close();
  CHECK(!released);
  hang.end();
  while (!released) std::this_thread::yield();
}

TEST_CASE_FIXTURE(StagedCouple, "close() of memory waits for the copies that a peer asked for") {
  const Memory near = host_array(left, {1000});
  Memory far = gpu_array(right, {1000});
  const RemoteMemory remote = far.remote();
  Hang hang(cuda);
  const auto copied = write(*to_right, near, remote);
  hang.await_copies();
  std::atomic<bool> closed = false;
  auto closing = std::async(std::launch::async, [&] {
    far.close();
    closed = true;
  });
  while (!far.closed()) std::this_thread::yield();
  // Refused: peers no longer have it. What arrived just before waits behind the hanging copy.
  std::vector<engine::TransferPtr> asked;
  do {
    asked.push_back(write(*to_right, near, remote));
  } while (!asked.back()->wait(within(0.01)));
  CHECK(contains(error_of(asked.back()), "REM_ACCESS_ERR"));
  for (unsigned i = 1; i < 20; ++i) {
    finish(to_left->notify({1, i}));
    CHECK(left.wait_notify(1, 1, true, soon()).second == i);
  }
  CHECK(!closed);
  hang.end();
  closing.get();
  finish(copied);
}

TEST_CASE_FIXTURE(StagedCouple, "close() of a Peer waits for the copies that it asked for") {
  const Memory near = host_array(left, {1000});
  const Memory far = gpu_array(right, {1000});
  Hang hang(cuda);
  const auto copied = write(*to_right, near, far.remote());
  hang.await_copies();
  std::atomic<bool> closed = false;
  auto closing = std::async(std::launch::async, [&] {
    to_left->close(within(0));
    closed = true;
  });
  const std::string lost = error_of(copied);
  CHECK(contains(lost, "close() was called"));
  CHECK(!contains(lost, "recv()"));  // that is for a send()
  CHECK(contains(lost, "may have been written)"));
  CHECK(!closed);
  CHECK(to_right->rails().path(0)->stats().sends_dropped == 0);
  hang.end();
  closing.get();
}

TEST_CASE_FIXTURE(StagedCouple, "what was to follow a transfer is lost with the peer, as that is") {
  const Memory near = host_array(left, {1000000});  // more than a ring holds
  const Memory far = gpu_array(right, {1000000});
  const Memory near_host = host_array(left, {1000});
  const Memory far_host = host_array(right, {1000});
  Hang hang(cuda);
  const auto first = write(*to_right, near, far.remote());
  hang.await_copies();
  const auto second = write(*to_right, near, far.remote(), Notification{1, 1});
  const auto messages = {to_right->notify({2, 2}), to_right->send(near, 1)};
  const auto beside = write(*to_right, near_host, far_host.remote(), Notification{3, 3});
  to_right->close(within(0));
  const auto lost = [](const engine::TransferPtr& transfer, Effect effect) {
    REQUIRE(transfer->wait(soon()));
    try {
      (void)transfer->result();
      FAIL("nothing was thrown");
    } catch (const PeerLost& error) {
      CHECK(error.code() == 0);
      CHECK(error.effect() == effect);
      CHECK(contains(error.what(), "close() was called"));
      CHECK(error.effect_words() > 0);
      return std::string(error.what());
    }
    return std::string();
  };
  CHECK(!contains(lost(first, Effect::some), "to follow"));
  (void)lost(second, Effect::nothing);  // cut off, or its first chunk found the peer lost
  for (const auto& transfer : messages) {
    const std::string text = lost(transfer, Effect::nothing);
    CHECK(contains(text, "to follow an earlier transfer"));
    CHECK(!contains(text, "may have been written"));  // only the earlier one says that
  }
  (void)lost(beside, Effect::all);  // its data was in flight, or in place
}

TEST_CASE_FIXTURE(StagedCouple,
                  "a transfer that is cut off states how much of it may be in place at most") {
  const auto transfer_of = [&](std::uint64_t nbytes) {
    return std::make_shared<engine::Transfer>(to_right->rails().path(0)->poller(), nbytes, nullptr);
  };
  engine::StagedWork work(transfer_of(200), engine::StagedWork::Direction::out);
  const auto effect = [&] {
    work.fail({.kind = Failure::Kind::verbs, .message = "cut off"});
    return work.conclusion().effect;
  };
  const auto move_chunk = [&](bool placed) {
    CHECK(work.cut(100).size() == 1);
    work.begin_chunk();
    work.end_chunk(placed);
  };
  SUBCASE("chunks of its own") {
    work.add({.near = Layout::bytes(1000, 200), .far = Layout::bytes(5000, 200)});
    CHECK(effect() == Effect::nothing);
    move_chunk(true);
    CHECK(effect() == Effect::some);
    SUBCASE("all placed") {
      move_chunk(true);
      CHECK(effect() == Effect::all);
    }
    SUBCASE("not all placed") {
      move_chunk(false);
      CHECK(effect() == Effect::some);
    }
  }
  SUBCASE("a notification alone") {
    work.follow(transfer_of(0));
    CHECK(effect() == Effect::nothing);
  }
  SUBCASE("the notification of what devices move") {
    const auto data = transfer_of(100);
    work.follow(data);
    CHECK(effect() == Effect::all);  // in progress
    data->fail({.kind = Failure::Kind::verbs, .message = "refused"});
    data->drop();
    CHECK(effect() == Effect::nothing);
  }
}

TEST_CASE_FIXTURE(StagedCouple, "atomics come behind what is staged") {
  const Memory near = gpu_array(left, {100000});
  const Memory far = gpu_array(right, {100000});
  const Memory word = right.empty(std::vector<std::int64_t>{1}, DType::parse("uint64"));
  const auto* count = reinterpret_cast<const std::uint64_t*>(word.layout().address);
  for (unsigned round = 1; round <= 10; ++round) {
    const Bytes bytes = counted(100000, round);
    put(near, bytes);
    const auto data = write(*to_right, near, far.remote());
    finish(to_right->fetch_add(word.remote(), 1));
    CHECK(*count == round);
    CHECK(get(far) == bytes);
    finish(data);
  }
}

TEST_CASE("a message goes by a device that does not reach the memory, packed") {
  FakeCuda cuda;
  engine::EndpointOptions chosen = blind_options("left", cuda, {}, false);
  chosen.open_devices = [] {
    auto devices = open_blind({"soft0"});
    devices.push_back(
        {rdma::Device::open(softhca::verbs(), softhca::canonical_name("soft0@127.0.0.2")),
         "it was asked for"});
    return devices;
  };
  engine::Endpoint left(chosen);
  engine::Endpoint right(blind_options("right", cuda, {"soft0", "soft0@127.0.0.2"}, true));
  const auto to_right = left.connect(right.address().to_bytes(), soon());
  const auto to_left = right.accept(soon());
  const Layout layout =
      Layout::contiguous(cuda.add_bytes(100000), kByte, std::vector<std::int64_t>{100000});
  const Memory near = left.register_memory(layout, nullptr, {.device = "cuda:0"});
  REQUIRE(!near.staged());
  const Bytes bytes = counted(100000, 7);
  cuda.copies.write(layout.address, bytes);
  const Memory far = StagedCouple::host_array(right, {100000});
  const auto sent = to_right->send(near, 1);
  StagedCouple::finish(to_left->receive(far, 1));
  StagedCouple::finish(sent);
  const auto* data = reinterpret_cast<const std::byte*>(far.layout().address);
  CHECK(Bytes(data, data + bytes.size()) == bytes);
}

TEST_CASE("what no thread will do is not left behind as pending") {
  engine::Staging::Services services{
      .poller = nullptr,
      .registrations = {},
      .memories = {},
      .stager = {},
      .sends = {},
      .pending = std::make_shared<engine::PendingWork>(nullptr, nullptr),
      .chunk = 4096};
  services.stager = std::make_shared<engine::Stager>(nullptr);
  services.stager->stop();
  const auto staging =
      std::make_shared<engine::Staging>(services, std::make_shared<engine::PathGroup>("nobody"));
  const auto put = [&] {
    staging->put(engine::StagedWork(std::make_shared<engine::Transfer>(nullptr, 0, nullptr),
                                    engine::StagedWork::Direction::out));
  };
  CHECK(contains(message_of<Error>(put), "make a new one"));
  CHECK(!services.pending->any());
  (void)staging->advance();
  CHECK(staging->ended());
}

}  // namespace
}  // namespace zerohop::testing
