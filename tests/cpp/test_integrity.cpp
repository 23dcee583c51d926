// Transfers that are compared end to end: checksums of arrays, who may ask for them, and the routes
// of GPUs.
#include <doctest/doctest.h>

#include <random>

#include "base/crc32c.hpp"
#include "base/error.hpp"
#include "engine/checker.hpp"
#include "engine/matcher.hpp"
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

TEST_CASE("checksums are told of what is registered, within its bounds, as long as it is") {
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
  const engine::SummedUp told = ask(named, 1, 20);
  CHECK(told.request == 7);
  CHECK(told.status == 0);
  CHECK(told.sums == sums_of(std::span(bytes).subspan(11, 20)));

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

// By p2p of GPUs; by soft0, which copies; and by both Endpoints, where no device reaches a GPU.
engine::EndpointOptions options_of(const char* name, const FakeCuda& cuda, const std::string& way) {
  if (way == "p2p") return checked(near(name, cuda));
  return checked(blind_options(name, cuda, {"soft0"}, way == "staged"));
}

struct CheckedCouple {
  explicit CheckedCouple(const std::string& way)
      : left(options_of("left", cuda, way)), right(options_of("right", cuda, way)) {}

  // What is given back apart has the driver that is there then: not that of the next couple.
  struct GivenBack {
    ~GivenBack() {
      const Deadline deadline = soon();
      while (cuda.retained > 0 && !deadline.passed()) std::this_thread::yield();
    }
    const FakeCuda& cuda;
  };

  FakeCuda cuda;
  GivenBack given_back{cuda};
  engine::Endpoint left;
  engine::Endpoint right;
  std::shared_ptr<Peer> to_right = left.connect(right.address().to_bytes(), soon());
  std::shared_ptr<Peer> to_left = right.accept(soon());

  Memory array(engine::Endpoint& endpoint, std::uint64_t nbytes) {
    const std::vector<std::int64_t> shape{static_cast<std::int64_t>(nbytes)};
    Layout layout = Layout::contiguous(0, kByte, shape);
    layout.address = cuda.copies.allocate(nbytes, std::byte{0xEE});
    cuda.add(gpu::MemoryKind::plain, layout.address, nbytes);
    return endpoint.register_memory(layout, nullptr, {.writable = true, .device = "cuda:0"});
  }
  void put(const Memory& memory, const Bytes& bytes) {
    cuda.copies.write(memory.layout().address, bytes);
  }
  Bytes get(const Memory& memory) {
    return cuda.copies.read(memory.layout().address, memory.layout().nbytes());
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
    const std::string text = error_of(
        both.to_right->write(twice, {.notify = Notification{2, 1}, .require = {}, .timeout = {}}));
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

}  // namespace
}  // namespace zerohop::testing
