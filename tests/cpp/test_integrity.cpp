// Transfers compared end to end: checksums of arrays, who may ask for them, and the GPU routes.
#include <doctest/doctest.h>

#include <algorithm>
#include <random>
#include <thread>

#include "base/crc32c.hpp"
#include "engine/integrity/checker.hpp"
#include "engine/path/verbs/matcher.hpp"
#include "gpu_couple.hpp"

namespace zerohop::testing {
namespace {

constexpr std::uint64_t kMiB = std::uint64_t{1} << 20;

std::vector<std::uint32_t> sums_of(std::span<const std::byte> bytes) {
  std::vector<std::uint32_t> sums;
  while (!bytes.empty()) {
    const std::size_t nbytes = std::min<std::size_t>(bytes.size(), engine::kSummedNbytes);
    sums.push_back(crc32c(bytes.first(nbytes)));
    bytes = bytes.subspan(nbytes);
  }
  return sums;
}

TEST_CASE("a checksum goes on where another one ended") {
  const Bytes bytes = counted(1000, 1);
  const std::span<const std::byte> all(bytes);
  for (const std::size_t at : {0u, 1u, 7u, 8u, 999u, 1000u}) {
    CHECK(crc32c(all.subspan(at), crc32c(all.first(at))) == crc32c(all));
  }
}

TEST_CASE("parts of any array are summed up in C order") {
  Bytes memory = counted(6 * kMiB, 3);
  const auto address = reinterpret_cast<std::uint64_t>(memory.data());
  constexpr std::int64_t kRows = 32 << 10;
  Layout layout = Layout::contiguous(address, kByte, std::vector<std::int64_t>{3, kRows, 64});
  const Layout whole = layout;
  layout.shape = Dims{kRows, 3, 64};  // the first two axes exchanged
  layout.strides = Dims{64, kRows * 64, 1};
  engine::Checksums sums(0);
  std::mt19937 random(7);
  for (const Layout& each : {whole, layout}) {
    Bytes packed(each.nbytes());
    engine::pack(each, packed);
    for (int round = 0; round < 8; ++round) {
      const std::uint64_t first = random() % packed.size();
      const std::uint64_t nbytes = random() % (packed.size() - first);
      CHECK(sums.of({each, first, nbytes}, nullptr) ==
            sums_of(std::span(packed).subspan(first, nbytes)));
    }
    CHECK(sums.of({each, 0, packed.size()}, nullptr) == sums_of(packed));
  }
}

TEST_CASE("checksums are given for registered memory, within its bounds, while it is registered") {
  Bytes bytes = counted(100, 9);
  const auto address = reinterpret_cast<std::uint64_t>(bytes.data());
  const auto memories = std::make_shared<engine::OwnMemories>();
  const auto staged = std::make_shared<engine::StagedMemories>();
  engine::Regions regions;
  regions.set_staged(staged->open({address, address + 100}, true));
  auto entry = memories->add(&regions, nullptr, nullptr);
  engine::Checker checker(4096, memories);

  RemoteMemory named;
  named.layout = Layout::bytes(address + 10, 50);
  named.staged_key = regions.staged_key();
  named.access = engine::kRemoteRead;
  named.begin = address;
  named.end = address + 100;
  named.device = "cpu";
  const auto ask = [&](const RemoteMemory& memory, std::uint64_t first, std::uint64_t nbytes) {
    return checker.answer({.request = 7, .parts = {{memory.to_bytes(), first, nbytes}}});
  };
  const engine::SummedUp reply = ask(named, 1, 20);
  CHECK(reply.request == 7);
  CHECK(reply.status == 0);
  CHECK(reply.sums == sums_of(std::span(bytes).subspan(11, 20)));

  const auto refuses = [&](const engine::SummedUp& answer, const std::string& why) {
    CHECK(answer.sums.empty());
    CHECK((answer.status == IBV_WC_REM_ACCESS_ERR) == (why == "never given"));
    CHECK(answer.status != 0);
    CHECK(contains(answer.refusal, why));
  };
  refuses(ask(named, 1, 50), "not there");
  refuses(ask(named, ~std::uint64_t{0}, 1), "not there");
  refuses(ask(named, 51, 0), "not there");
  RemoteMemory other = named;
  ++other.staged_key;
  refuses(ask(other, 0, 1), "never given");
  other = named;
  other.access = 0;
  refuses(ask(other, 0, 1), "may not be read");
  other = named;  // beyond what its key covers, whatever the message says of its bounds
  other.begin = address - 4096;
  other.layout.address = address - 1;
  refuses(ask(other, 0, 1), "never given");
  refuses(checker.answer({.request = 8, .parts = {{Bytes(30), 0, 1}}}), "invalid");
  std::vector<engine::SumUp::Part> many(200, {named.to_bytes(), 0, 1});
  refuses(checker.answer({.request = 9, .parts = many}), "too many");
  entry.reset();
  refuses(ask(named, 1, 20), "never given");
}

engine::EndpointOptions checked(engine::EndpointOptions chosen) {
  chosen.integrity = true;
  return chosen;
}

// By p2p between GPUs; by soft0, which copies; and by both Endpoints, where no device reaches a
// GPU.
engine::EndpointOptions options_of(const char* name, const std::string& way) {
  if (way == "p2p") return checked(near(name));
  return checked(way == "copied" ? options(name) : blind(name));
}

struct CheckedCouple : GpuCouple {
  explicit CheckedCouple(const std::string& way)
      : GpuCouple(options_of("left", way), options_of("right", way)) {}

  Memory array(engine::Endpoint& endpoint, std::uint64_t nbytes) {
    return GpuCouple::array(endpoint, {static_cast<std::int64_t>(nbytes)});
  }
};

TEST_CASE("arrays of GPUs are compared on every route") {
  for (const std::string way : {"p2p", "copied", "staged"}) {
    CAPTURE(way);
    CheckedCouple both(way);
    const std::uint64_t nbytes = 2 * kMiB + 77;
    const Memory one = both.array(both.left, nbytes);
    const Memory other = both.array(both.left, nbytes);
    const Memory far = both.array(both.right, nbytes);
    Bytes bytes = counted(nbytes, 5);
    both.put(one, bytes);
    const auto good = write(*both.to_right, one, far.remote(), Notification{1, 1});
    finish(good);
    CHECK(good->route().kind == (way == "copied" ? "staged" : way));
    CHECK(both.get(far) == bytes);
    finish(read(*both.to_right, other, far.remote()));
    CHECK(both.get(other) == bytes);

    bytes[kMiB + 3] ^= std::byte{1};
    both.put(other, bytes);
    const RemoteMemory remote = far.remote();
    const std::vector<Peer::Pair> twice{{&one, &remote}, {&other, &remote}};
    const std::string text = error_of(both.to_right->write(twice, by("", Notification{2, 1})));
    CHECK(contains(text, "bytes 1048576 to 2097151 have CRC32C"));
    finish(both.to_right->notify({3, 1}));
    CHECK(both.right.wait_notify(3, 1, true, soon()).second == 1);
    CHECK(both.right.peek_notify(2) == 0);
    CHECK(both.right.peek_notify(1) == 1);
  }
}

TEST_CASE("messages of arrays of GPUs are compared") {
  for (const std::string way : {"p2p", "copied", "staged"}) {
    CAPTURE(way);
    CheckedCouple both(way);
    for (const std::uint64_t nbytes : {100u, 100'000u}) {
      const Memory out = both.array(both.left, nbytes);
      const Memory in = both.array(both.right, nbytes);
      both.put(out, counted(nbytes, 8));
      const auto sent = both.to_right->send(out, 4);
      const auto taken = both.to_left->receive(in, 4);
      finish(taken);
      CHECK(taken->result() == nbytes);
      finish(sent);
      CHECK(both.get(in) == both.get(out));
    }
  }
}

// Streams of the program, which do nothing until they are run.
struct CheckedStreams : CheckedCouple {
  CheckedStreams() : CheckedCouple("p2p") {}

  void* stream() { return cuda.copies.program_stream(); }
  static TransferPtr write_in(void* stream, Peer& peer, const Memory& from, const Memory& to,
                              std::optional<Notification> notify = {}) {
    return write(peer, from, to.remote(), by("", notify, 1.0, stream));
  }
  void run(const std::vector<void*>& streams, const std::vector<TransferPtr>& until) {
    const auto done = [&] {
      return std::ranges::all_of(until, [](const auto& each) { return each->done(); });
    };
    bool ran = false;  // to the end: work that a stream has not reached is leaked
    for (const Deadline deadline = soon(); !(ran && done()) && !deadline.passed();) {
      ran = true;
      for (void* each : streams) ran = cuda.copies.run(each) && ran;
      std::this_thread::yield();
    }
    for (const auto& each : until) finish(each);
  }
};

TEST_CASE_FIXTURE(CheckedStreams, "a checked write takes its turn in its stream, which it holds") {
  void* const work = stream();
  const Memory mine = array(left, 50000);
  const Memory far = array(right, 50000);
  const Memory next = array(right, 50000);
  put(mine, counted(50000, 1));
  put(next, counted(50000, 2));
  const auto waiting = left.wait_notify_on(work, 1, true, {});
  const auto written = write_in(work, *to_right, mine, far, Notification{5, 77});
  CHECK_FALSE(cuda.copies.run(work));
  CHECK(get(far) == Bytes(50000, std::byte{0xEE}));
  // The stream's next work changes the array: not before it is compared.
  const auto changed = read(*to_right, mine, next.remote(), by("", {}, 1.0, work));
  finish(to_left->notify({1, 3}));
  run({work}, {waiting, written, changed});
  CHECK(waiting->result() == 3);
  CHECK(get(far) == counted(50000, 1));
  CHECK(get(mine) == counted(50000, 2));
  CHECK(right.wait_notify(5, 1, true, soon()).second == 77);
}

TEST_CASE_FIXTURE(CheckedStreams, "streams that wait for each other's checked writes go through") {
  struct Side {
    engine::Endpoint& endpoint;
    Peer& peer;
    Memory mine;
    Memory inbox;
    void* work;   // waits for the other side's gate, then writes
    void* aside;  // opens the gate
  };
  const auto side = [&](engine::Endpoint& endpoint, Peer& peer) {
    return Side{endpoint, peer, array(endpoint, 5000), array(endpoint, 5000), stream(), stream()};
  };
  const Side one = side(left, *to_right);
  const Side other = side(right, *to_left);
  put(one.mine, counted(5000, 1));
  put(other.mine, counted(5000, 2));
  for (std::uint32_t round = 1; round <= 10; ++round) {
    std::vector<TransferPtr> all;
    for (const auto& [here, there] : {std::pair(&one, &other), std::pair(&other, &one)}) {
      all.push_back(here->endpoint.wait_notify_on(here->work, 1, true, {}));
      all.push_back(
          write_in(here->work, here->peer, here->mine, there->inbox, Notification{2, round}));
      all.push_back(
          write_in(here->aside, here->peer, here->mine, there->inbox, Notification{1, round}));
    }
    run({one.work, other.work, one.aside, other.aside}, all);
    for (const Side* each : {&one, &other}) {
      CHECK(each->endpoint.wait_notify(2, 1, true, soon()).second == round);
    }
  }
}

TEST_CASE_FIXTURE(CheckedStreams, "a call that would wait for a stream that waits is refused") {
  void* const work = stream();
  const Memory known = array(left, 16);  // identifies the GPU
  const auto [host, far_host] = host_arrays({100});
  const RemoteMemory remote = far_host.remote();
  const auto waiting = left.wait_notify_on(work, 4, true, {});
  for (const char* route : {"p2p", "host", ""}) {
    CHECK(contains(message_of<RouteUnavailable>(
                       [&] { write(*to_right, host, remote, by(route, {}, 1.0, work)); }),
                   "stream= waits for notification slot 4, and this call would wait for the"));
  }
  finish(to_left->notify({4, 1}));
  run({work}, {waiting});
  for (const char* route : {"p2p", "host"}) {
    finish(write(*to_right, host, remote, by(route, Notification{6, 1}, 1.0, work)));
  }
}

TEST_CASE_FIXTURE(CheckedStreams, "memory of a GPU is summed up however scattered it lies") {
  constexpr std::int64_t kRows = 5000;
  Layout layout = Layout::contiguous(0, kByte, std::vector<std::int64_t>{kRows, 3, 8});
  layout.strides = Dims{64, 16, 1};
  layout.address = cuda.add_bytes(kRows * 64);
  Bytes copy = counted(kRows * 64, 6);
  cuda.copies.write(layout.address, copy);
  Layout in_host = layout;
  in_host.address = reinterpret_cast<std::uint64_t>(copy.data());
  engine::Checksums sums(kStagingChunk);
  const auto device = gpu::Device::open(cuda.table(), 0);
  std::mt19937 random(3);
  for (int round = 0; round < 8; ++round) {
    const std::uint64_t first = random() % layout.nbytes();
    const std::uint64_t nbytes = random() % (layout.nbytes() - first);
    const auto expected = engine::Checksums(0).of({in_host, first, nbytes}, nullptr);
    CHECK(sums.of({layout, first, nbytes}, device.get()) == expected);
  }
}

TEST_CASE_FIXTURE(CheckedStreams, "an array of a GPU in many pieces is compared") {
  constexpr std::int64_t kRows = 20000;
  const Memory whole = array(left, kRows * 16);
  const Memory far = array(right, kRows * 8);
  put(whole, counted(kRows * 16, 7));
  Layout layout = whole.layout();
  layout.shape = Dims{kRows, 8};
  layout.strides = Dims{16, 1};
  const Memory halves =
      left.register_memory(layout, nullptr, {.writable = true, .device = "cuda:0"});
  RemoteMemory remote = far.remote();
  remote.layout.shape = Dims{kRows, 8};
  remote.layout.strides = Dims{8, 1};
  finish(write(*to_right, halves, remote, by("p2p")));
  Bytes expected;
  const Bytes all = get(whole);
  for (std::int64_t i = 0; i < kRows; ++i) {
    expected.insert(expected.end(), all.begin() + i * 16, all.begin() + i * 16 + 8);
  }
  CHECK(get(far) == expected);
}

}  // namespace
}  // namespace zerohop::testing
