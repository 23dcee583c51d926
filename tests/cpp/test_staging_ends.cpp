// Closing, hangs and errors during staged transfers, and the program that destroys a GPU's context:
// nothing is released that a copy may still use, and nothing waits without end.
#include <doctest/doctest.h>

#include <atomic>
#include <future>
#include <string>
#include <thread>
#include <vector>

#include "gpu_couple.hpp"

namespace zerohop::testing {
namespace {

struct Hanging : StagedCouple {
  Hanging() { hang(true); }
  ~Hanging() { hang(false); }
  void await_copies() const {
    while (cuda.copies.waiting() == 0) std::this_thread::yield();
  }
};

TEST_CASE_FIXTURE(Hanging, "a GPU that hangs is an error in time, and mends when it goes on") {
  const Memory near = host_array(left, {100000});
  const Memory far = array(right, {100000});
  CHECK(contains(error_of(write(*to_right, near, far.remote())), "REM_OP_ERR"));
  const std::string next = error_of(write(*to_right, near, far.remote()));
  CHECK(contains(next, "REM_OP_ERR"));
  hang(false);
  while (cuda.copies.waiting() > 0) std::this_thread::yield();  // it polls now and then
  const Bytes bytes = counted(100000, 3);
  put(near, bytes);
  finish(write(*to_right, near, far.remote()));
  CHECK(get(far) == bytes);
  finish(to_right->notify({1, 1}));
}

TEST_CASE_FIXTURE(Hanging, "memory stays as long as a copy that was given up may reach it") {
  std::atomic<bool> released = false;
  constexpr std::int64_t kNbytes = 50000;
  const Layout layout = Layout::bytes(cuda.add_bytes(kNbytes), kNbytes);
  std::shared_ptr<void> owner(nullptr, [&](void*) { released = true; });
  Memory near =
      left.register_memory(layout, std::move(owner), {.writable = true, .device = "cuda:0"});
  const Memory host = host_array(right, {kNbytes});
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
  hang(false);
  while (!released) std::this_thread::yield();
}

TEST_CASE_FIXTURE(Hanging, "close() of memory waits for the copies that a peer asked for") {
  const Memory near = host_array(left, {1000});
  Memory far = array(right, {1000});
  const RemoteMemory remote = far.remote();
  const auto copied = write(*to_right, near, remote);
  await_copies();
  std::atomic<bool> closed = false;
  auto closing = std::async(std::launch::async, [&] {
    far.close();
    closed = true;
  });
  while (!far.closed()) std::this_thread::yield();
  // Refused: peers no longer have it. What arrived just before waits behind the hanging copy.
  std::vector<TransferPtr> asked;
  do {
    asked.push_back(write(*to_right, near, remote));
  } while (!asked.back()->wait(within(0.01)));
  CHECK(contains(error_of(asked.back()), "REM_ACCESS_ERR"));
  for (unsigned i = 1; i < 20; ++i) {
    finish(to_left->notify({1, i}));
    CHECK(left.wait_notify(1, 1, true, soon()).second == i);
  }
  CHECK(!closed);
  hang(false);
  closing.get();
  finish(copied);
}

TEST_CASE_FIXTURE(Hanging, "close() of a Peer waits for the copies that it asked for") {
  const Memory near = host_array(left, {1000});
  const Memory far = array(right, {1000});
  const auto copied = write(*to_right, near, far.remote());
  await_copies();
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
  CHECK(to_right->rails().at(0)->stats().sends_dropped == 0);
  hang(false);
  closing.get();
}

TEST_CASE_FIXTURE(Hanging, "what was to follow a transfer is lost with the peer, as that is") {
  const Memory near = host_array(left, {1000000});  // more than a ring holds
  const Memory far = array(right, {1000000});
  const auto [near_host, far_host] = host_arrays({1000});
  const auto first = write(*to_right, near, far.remote());
  await_copies();
  const auto second = write(*to_right, near, far.remote(), Notification{1, 1});
  const auto messages = {to_right->notify({2, 2}), to_right->send(near, 1)};
  const auto beside = write(*to_right, near_host, far_host.remote(), Notification{3, 3});
  to_right->close(within(0));
  const auto lost = [](const TransferPtr& transfer, Effect effect) {
    const auto error = failure_of<PeerLost>(transfer);
    CHECK(error.code() == 0);
    CHECK(error.effect() == effect);
    CHECK(contains(error.what(), "close() was called"));
    CHECK(error.effect_words() > 0);
    return std::string(error.what());
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
    return std::make_shared<engine::Transfer>(to_right->rails().at(0)->poller(), nbytes, nullptr);
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
  const auto [near, far] = arrays({100000});
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
  engine::EndpointOptions chosen = with_gpu(options("left"), cuda);
  chosen.open_devices = [] {
    auto devices = open_blind({"soft0"});
    devices.push_back(
        {rdma::Device::open(softhca::verbs(), softhca::canonical_name("soft0@127.0.0.2")),
         "it was asked for"});
    return devices;
  };
  engine::Endpoint left(chosen);
  engine::Endpoint right(with_gpu(blind("right", {"soft0", "soft0@127.0.0.2"}), cuda));
  const auto to_right = left.connect(right.address().to_bytes(), soon());
  const auto to_left = right.accept(soon());
  const Layout layout = Layout::bytes(cuda.add_bytes(100000), 100000);
  const Memory near = left.register_memory(layout, nullptr, {.device = "cuda:0"});
  REQUIRE(!near.staged());
  const Bytes bytes = counted(100000, 7);
  cuda.copies.write(layout.address, bytes);
  const Memory far = host_array(right, {100000});
  const auto sent = to_right->send(near, 1);
  finish(to_left->receive(far, 1));
  finish(sent);
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
      std::make_shared<engine::Staging>(services, std::make_shared<engine::RailGroup>("nobody"));
  const auto put = [&] {
    staging->put(engine::StagedWork(std::make_shared<engine::Transfer>(nullptr, 0, nullptr),
                                    engine::StagedWork::Direction::out));
  };
  CHECK(contains(message_of<Error>(put), "make a new one"));
  CHECK(!services.pending->any());
  (void)staging->advance();
  CHECK(staging->ended());
}

// --- the program destroys a GPU's context: a clear error, and host memory keeps working ---

constexpr driver::CudaResult kDestroyed = 709;  // CUDA_ERROR_CONTEXT_IS_DESTROYED
const std::string kSaid = "(709), made to fail; the program has destroyed or reset the context";
constexpr std::chrono::seconds kSoon{8};  // with two copies that are waited for

struct Gone {
  explicit Gone(FakeCuda& of) : cuda(of) {
    cuda.error = kDestroyed;
    cuda.gone = true;
  }
  ~Gone() { cuda.gone = false; }  // the fake would otherwise count the context's objects as leaked
  FakeCuda& cuda;
};

// All that is left to do once the GPU's memory is gone.
template <typename Couple>
void ends_well(Couple& couple, Memory& ours, Memory& theirs) {
  const auto [near, far] = couple.host_arrays({1000});
  finish(write(*couple.to_right, near, far.remote(), Notification{3, 1}));
  CHECK(couple.right.wait_notify(3, 1, true, soon()).second == 1);
  const auto begin = Deadline::Clock::now();
  ours.close();
  theirs.close();
  couple.left.close(within(1));
  couple.right.close(within(1));
  CHECK(Deadline::Clock::now() - begin < kSoon);
}

template <typename Couple>
void refuses_and_ends_well(Couple& couple, Memory ours, Memory theirs) {
  finish(write(*couple.to_right, ours, theirs.remote()));
  const Gone gone(couple.cuda);
  for (int i = 0; i < 3; ++i) {
    CHECK(contains(
        message_of<Error>([&] { finish(write(*couple.to_right, ours, theirs.remote())); }), kSaid));
    CHECK(contains(
        message_of<Error>([&] { finish(read(*couple.to_right, ours, theirs.remote())); }), kSaid));
  }
  ends_well(couple, ours, theirs);
}

TEST_CASE("by p2p") {
  GpuCouple couple;
  refuses_and_ends_well(couple, couple.array(couple.left, {1000}),
                        couple.array(couple.right, {1000}));
}

TEST_CASE("by a device that reaches the memory") {
  CopiedCouple couple;
  refuses_and_ends_well(couple, couple.array(couple.left, {1000}),
                        couple.array(couple.right, {1000}));
}

TEST_CASE("by chunks of the host") {
  StagedCouple couple;
  refuses_and_ends_well(couple, couple.array(couple.left, {100000}),
                        couple.array(couple.right, {100000}));
}

TEST_CASE("in the middle of a copy") {
  GpuCouple couple;
  couple.given_back.patience = 0.5;
  auto [ours, theirs] = couple.arrays({1000});
  finish(write(*couple.to_right, ours, theirs.remote()));
  couple.hang(true);
  const auto written = write(*couple.to_right, ours, theirs.remote());
  const Gone gone(couple.cuda);
  const std::string said = error_of(written);
  CHECK(contains(said, kSaid));
  CHECK(written->failure()->effect == Effect::some);
  couple.hang(false);
  ends_well(couple, ours, theirs);
}

TEST_CASE("new memory is refused with the cause") {
  GpuCouple couple;
  const Memory before = couple.array(couple.left, {1000});
  const Gone gone(couple.cuda);
  const std::string said = message_of<Error>([&] { (void)couple.array(couple.left, {1000}); });
  CHECK(contains(said, kSaid));
}

}  // namespace
}  // namespace zerohop::testing
