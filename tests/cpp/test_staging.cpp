// GPU memory that no device reaches, moved by both endpoints through rings of pinned memory.
#include <algorithm>
#include <future>
#include <thread>

#include "gpu_couple.hpp"

namespace zerohop::testing {
namespace {

constexpr std::uint64_t kPad = 100;  // bytes around the moved ones, which must not change

Memory part(const Memory& whole, std::int64_t begin, std::int64_t nbytes) {
  return whole.slice(std::vector<Index>{Slice{begin, begin + nbytes}});
}

struct Ends {
  bool near_on_gpu;
  bool far_on_gpu;
};

// Writes and reads `nbytes` in the middle of larger arrays.
void check_both_ways(GpuCouple& both, const Ends& ends, std::size_t nbytes) {
  const auto size = static_cast<std::int64_t>(nbytes);
  const std::vector<std::int64_t> shape{size + 2 * static_cast<std::int64_t>(kPad)};
  const auto make = [&](engine::Endpoint& endpoint, bool on_gpu) {
    return on_gpu ? both.array(endpoint, shape) : host_array(endpoint, shape);
  };
  const Memory near = make(both.left, ends.near_on_gpu);
  const Memory far = make(both.right, ends.far_on_gpu);
  const Bytes whole(nbytes + 2 * kPad, std::byte{0xEE});
  both.put(near, whole);
  both.put(far, whole);
  const auto at = static_cast<std::int64_t>(kPad);
  const Memory near_part = part(near, at, size);
  const Memory far_part = part(far, at, size);
  for (const bool writes : {true, false}) {
    const Bytes bytes = counted(nbytes, writes ? 3 : 77);
    const Memory& source = writes ? near_part : far_part;
    both.put(source, bytes);
    const auto transfer = writes ? write(*both.to_right, near_part, far_part.remote())
                                 : read(*both.to_right, near_part, far_part.remote());
    CHECK(transfer->route().kind == "staged");
    finish(transfer);
    Bytes wanted = whole;
    std::ranges::copy(bytes, wanted.begin() + static_cast<std::ptrdiff_t>(kPad));
    CHECK(both.get(writes ? far : near) == wanted);
  }
}

TEST_CASE_TEMPLATE("every byte is placed, and none beside, whichever end is a GPU", Both,
                   StagedCouple, CopiedCouple) {
  Both both;
  for (const Ends ends : {Ends{true, true}, Ends{true, false}, Ends{false, true}}) {
    for (const std::size_t nbytes : {1u, 255u, 4095u, 4096u, 4097u, 100000u}) {
      check_both_ways(both, ends, nbytes);
    }
  }
}

TEST_CASE_FIXTURE(StagedCouple, "there is one ring to ask with, and one to answer") {
  for (int round = 0; round < 3; ++round) check_both_ways(*this, {true, true}, 10000);
  CHECK(cuda.copies.pinned() == 2);
}

TEST_CASE_FIXTURE(StagedCouple, "memory is registered as staged, and the route says why") {
  const auto [near, far] = arrays({100});
  CHECK(near.choice()->way == engine::RegistrationWay::staged);
  CHECK(!far.remote().reachable());
  const engine::Route route = to_right->route(near, far.remote());
  CHECK(route.kind == "staged");
  CHECK(contains(route.reason, "libibverbs lacks ibv_reg_dmabuf_mr"));
  CHECK(contains(route.reason, "do not reach its cuda:0"));
  CHECK(to_right->route(host_array(left, {100}), far.remote()).kind == "staged");
  const RemoteMemory remote = far.remote();
  const auto call = [&] { (void)write(*to_right, near, remote, {{}, "gpudirect", {}}); };
  CHECK(contains(message_of<RouteUnavailable>(call), "only 'staged' is"));
  finish(write(*to_right, near, remote, {{}, "staged", {}}));
  CHECK(RemoteMemory::from_bytes(remote.to_bytes()) == remote);
}

void check_columns(GpuCouple& both) {
  const std::vector<std::int64_t> shape{900, 20};
  const Memory near = both.array(both.left, shape);
  const Memory far = both.array(both.right, shape);
  const Bytes bytes = counted(18000, 5);
  both.put(near, bytes);
  const Memory near_part = near.slice(std::vector<Index>{Slice{}, Slice{3, 6}});
  const Memory far_part = far.slice(std::vector<Index>{Slice{}, Slice{11, 14}});
  finish(write(*both.to_right, near_part, far_part.remote()));
  Bytes wanted(18000, std::byte{0xEE});
  for (std::size_t row = 0; row < 900; ++row) {
    std::copy_n(bytes.begin() + static_cast<std::ptrdiff_t>(row * 20 + 3), 3,
                wanted.begin() + static_cast<std::ptrdiff_t>(row * 20 + 11));
  }
  CHECK(both.get(far) == wanted);
  both.put(near, Bytes(18000, std::byte{0xEE}));
  finish(read(*both.to_right, near_part, far_part.remote()));
  CHECK(both.get(near)[18000 - 20 + 3] == wanted[18000 - 20 + 11]);
}

TEST_CASE_TEMPLATE("columns go to columns, in many short parts", Both, StagedCouple, CopiedCouple) {
  Both both;
  check_columns(both);
}

TEST_CASE("a request names no more parts than fit into a message that its receiver takes") {
  for (const std::uint32_t nbytes : {64u, 100u, 4096u}) {
    CAPTURE(nbytes);
    StagedCouple both(engine::MessageWindow{.slots = 1, .nbytes = nbytes});
    check_columns(both);
    CHECK(both.to_right->rails().at(0)->stats().broken == 0);
  }
}

TEST_CASE_TEMPLATE("a notification comes behind lists of arrays of every kind", Both, StagedCouple,
                   CopiedCouple) {
  Both both;
  const Memory near = both.array(both.left, {60, 500});
  const Memory near_host = host_array(both.left, {20, 500});
  const Memory far = both.array(both.right, {40, 500});
  const Memory far_host = host_array(both.right, {40, 500});
  for (unsigned round = 1; round <= 20; ++round) {
    const Bytes bytes = counted(30000, round);
    both.put(near, bytes);
    both.put(near_host, Bytes(bytes.begin(), bytes.begin() + 10000));
    std::vector<Memory> parts;
    std::vector<RemoteMemory> remotes;
    for (std::int64_t i = 0; i < 80; ++i) {
      parts.push_back((i < 60 ? near : near_host).slice(std::vector<Index>{i % 60}));
      remotes.push_back((i % 2 == 0 ? far : far_host).slice(std::vector<Index>{i / 2}).remote());
    }
    std::vector<Peer::Pair> pairs;
    for (std::size_t i = 0; i < 80; ++i) pairs.emplace_back(&parts[i], &remotes[i]);
    const auto transfer = both.to_right->write(pairs, {Notification{7, round}, "", {}});
    CHECK(both.right.wait_notify(7, 1, true, soon()) == engine::Endpoint::Notified{7, round});
    Bytes even, odd;
    for (std::size_t i = 0; i < 80; ++i) {
      const auto row = bytes.begin() + static_cast<std::ptrdiff_t>((i % 60) * 500);
      (i % 2 == 0 ? even : odd).insert((i % 2 == 0 ? even : odd).end(), row, row + 500);
    }
    CHECK(both.get(far) == even);
    CHECK(both.get(far_host) == odd);
    finish(transfer);
  }
}

TEST_CASE_FIXTURE(StagedCouple, "what devices move later notifies behind what is staged") {
  const auto [near, far] = arrays({300000});
  const auto [near_host, far_host] = host_arrays({1000});
  for (unsigned round = 1; round <= 5; ++round) {
    const Bytes bytes = counted(300000, round);
    put(near, bytes);
    const auto data = write(*to_right, near, far.remote());
    const auto note = to_right->notify({1, round});
    const auto both = write(*to_right, near_host, far_host.remote(), Notification{2, round});
    CHECK(both->route().kind == "host");
    const auto sent = to_right->send(near_host, 9);
    CHECK(right.wait_notify(1, 1, true, soon()).second == round);
    CHECK(get(far) == bytes);
    CHECK(right.wait_notify(2, 1, true, soon()).second == round);
    finish(to_left->receive(far_host, 9));
    for (const auto& transfer : {data, note, both, sent}) finish(transfer);
  }
}

TEST_CASE_FIXTURE(StagedCouple, "both sides write and read at once, and nobody waits in a circle") {
  const std::vector<std::int64_t> shape{200000};
  const auto exchange = [&](engine::Endpoint& own, Peer& peer, engine::Endpoint& other,
                            unsigned seed) {
    const Memory source = array(own, shape);
    const Memory target = array(other, shape);
    const Memory back = array(own, shape);
    for (unsigned round = 0; round < 4; ++round) {
      const Bytes bytes = counted(200000, seed + round);
      put(source, bytes);
      finish(write(peer, source, target.remote()));
      std::vector<TransferPtr> reads;
      for (int i = 0; i < 3; ++i) reads.push_back(read(peer, back, target.remote()));
      for (const auto& transfer : reads) finish(transfer);
      CHECK(get(back) == bytes);
    }
  };
  auto other = std::async(std::launch::async, [&] { exchange(right, *to_left, left, 50); });
  exchange(left, *to_right, right, 1);
  other.get();
}

TEST_CASE_FIXTURE(StagedCouple, "the owner refuses what a peer has no right to") {
  auto [near, far] = arrays({10000});
  const Memory fixed = array(right, {10000}, /*writable=*/false);
  RemoteMemory shifted = far.remote();
  shifted.layout.address += 1;
  RemoteMemory forged = fixed.remote();
  forged.access |= engine::kRemoteWrite;
  RemoteMemory guessed = far.remote();
  guessed.staged_key += 1;
  const RemoteMemory closed = far.remote();
  const auto error_of = [&](const RemoteMemory& remote) {
    return testing::error_of(write(*to_right, near, remote));
  };
  for (const RemoteMemory& remote : {forged, guessed}) {
    CHECK(contains(error_of(remote), "REM_ACCESS_ERR"));
    CHECK(contains(error_of(remote), "nothing was written"));
  }
  CHECK(contains(error_of(shifted), "REM_ACCESS_ERR"));  // the last chunk leaves the range
  far.close();
  CHECK(contains(error_of(closed), "REM_ACCESS_ERR"));
  const Memory again = array(right, {10000});
  finish(write(*to_right, near, again.remote()));  // the connection still works
  const Memory word = array(right, {1});
  RemoteMemory counter = word.remote();
  counter.layout.dtype = DType::parse("uint64");
  counter.layout.address &= ~std::uint64_t{7};
  const auto add = [&] { (void)to_right->fetch_add(counter, 1); };
  CHECK(contains(message_of<RouteUnavailable>(add), "keep counters in host memory"));
}

TEST_CASE_FIXTURE(StagedCouple, "memory that no key reaches is refused for its route") {
  const Memory near = array(left, {10000});
  const Memory near_host = host_array(left, {10000});
  RemoteMemory keyless = array(right, {10000}).remote();
  keyless.staged_key = 0;
  RemoteMemory keyless_host = host_array(right, {10000}).remote();
  keyless_host.rkeys = {};
  const auto refused = [&](const Memory& local, const RemoteMemory& remote) {
    const auto put = [&] { (void)write(*to_right, local, remote); };
    CHECK(contains(message_of<RouteUnavailable>(put), "no device reached that memory"));
    const auto get = [&] { (void)read(*to_right, local, remote); };
    CHECK(contains(message_of<RouteUnavailable>(get), "register it there again"));
    const auto ask = [&] { (void)to_right->route(local, remote); };
    CHECK(contains(message_of<RouteUnavailable>(ask), "of peer 'right'"));
  };
  refused(near, keyless);
  refused(near_host, keyless);
  refused(near, keyless_host);
  finish(write(*to_right, part(near, 0, 0), keyless.slice(std::vector<Index>{Slice{0, 0}})));
}

TEST_CASE_FIXTURE(StagedCouple, "memory of a rail that is not there is refused for its route") {
  const Memory near = array(left, {10000});
  RemoteMemory elsewhere = host_array(right, {10000}).remote();
  elsewhere.rkeys = {0, 0, 7};
  for (const auto& transfer :
       {write(*to_right, near, elsewhere, Notification{1, 1}), read(*to_right, near, elsewhere)}) {
    const auto error = failure_of<RouteUnavailable>(transfer);
    CHECK(contains(error.what(), "no rail reaches both arrays"));
    CHECK(error.effect() == Effect::nothing);
  }
}

TEST_CASE_FIXTURE(StagedCouple,
                  "memory closed in mid-transfer stays until the chunks in flight end") {
  for (int round = 0; round < 20; ++round) {
    auto [near, far] = arrays({200000});
    const auto transfer = write(*to_right, near, far.remote());
    if (round % 2 == 1) std::this_thread::yield();
    far.close();
    REQUIRE(transfer->wait(soon()));
    try {
      (void)transfer->result();
    } catch (const VerbsError& error) {
      CHECK(contains(error.what(), "REM_ACCESS_ERR"));
    }
  }
}

TEST_CASE_FIXTURE(StagedCouple, "a copy that fails is the transfer's error at either end") {
  const auto [near, far] = arrays({50000});
  finish(write(*to_right, near, far.remote()));  // makes the rings
  int here = 0, there = 0;
  // After the wait for the default stream.
  for (int call = 12; call < 240; call += 7) {
    cuda.error = 719;
    cuda.calls = 0;
    cuda.fail_at = call;
    const auto transfer = write(*to_right, near, far.remote());
    REQUIRE(transfer->wait(soon()));
    try {
      (void)transfer->result();
    } catch (const CudaError& error) {
      CHECK(error.code() == 719);
      ++here;
    } catch (const VerbsError& error) {
      CHECK(contains(error.what(), "REM_OP_ERR"));
      ++there;
    }
    cuda.fail_at = 0;
    const Bytes bytes = counted(50000, static_cast<unsigned>(call));
    put(near, bytes);
    finish(write(*to_right, near, far.remote()));
    CHECK(get(far) == bytes);
  }
  CHECK(here > 0);
  CHECK(there > 0);
}

TEST_CASE("rings that a GPU refuses are the transfer's error, and the next transfer makes them") {
  int failed = 0;
  for (int call = 1; call < 40; ++call) {
    StagedCouple both;
    const auto [near, far] = both.arrays({5000});
    both.cuda.error = 2;  // out of memory
    both.cuda.calls = 0;
    both.cuda.fail_at = call;
    try {
      finish(write(*both.to_right, near, far.remote()));
    } catch (const std::exception&) {
      ++failed;
    }
    both.cuda.fail_at = 0;
    const Bytes bytes = counted(5000, static_cast<unsigned>(call));
    both.put(near, bytes);
    finish(write(*both.to_right, near, far.remote()));
    CHECK(both.get(far) == bytes);
  }
  CHECK(failed > 0);
}

TEST_CASE_FIXTURE(StagedCouple, "a peer that goes takes every staged transfer with it") {
  auto [near, far] = arrays({400000});
  std::vector<TransferPtr> transfers;
  for (int i = 0; i < 8; ++i) transfers.push_back(write(*to_right, near, far.remote()));
  right.close(within(0));
  for (const auto& transfer : transfers) {
    REQUIRE(transfer->wait(soon()));
    try {
      (void)transfer->result();
    } catch (const PeerLost&) {
    } catch (const VerbsError&) {
    }
  }
  CHECK_THROWS_AS(write(*to_right, near, far.remote()), PeerLost);
}

TEST_CASE_FIXTURE(StagedCouple, "a connection cut in mid-transfer is an error, and mends") {
  const auto [near, far] = arrays({150000});
  for (unsigned round = 1; round <= 10; ++round) {
    const auto cut_off = write(*to_right, near, far.remote());
    (round % 2 == 0 ? to_right : to_left)->rails().at(0)->to_error("the wire was cut");
    REQUIRE(cut_off->wait(soon()));
    const auto repaired = [&] {
      return to_right->rails().reports()[0].trouble.empty() &&
             to_left->rails().reports()[0].trouble.empty();
    };
    REQUIRE(to_right->rails().at(0)->poller()->wait(repaired, soon()));
    const Bytes bytes = counted(150000, round);
    put(near, bytes);
    const auto transfer = write(*to_right, near, far.remote(), Notification{3, round});
    finish(transfer);
    CHECK(right.wait_notify(3, 1, true, soon()).second == round);
    CHECK(get(far) == bytes);
  }
}

TEST_CASE("several rails stage as one does") {
  StagedCouple both({"soft0", "soft0@127.0.0.2"});
  for (const Ends ends : {Ends{true, true}, Ends{true, false}, Ends{false, true}}) {
    check_both_ways(both, ends, 50000);
  }
}

}  // namespace
}  // namespace zerohop::testing
