// Endpoints on soft0 with arrays in a fake GPU's memory.
#include <doctest/doctest.h>

#include <algorithm>
#include <functional>
#include <string>
#include <thread>
#include <vector>

#include "base/error.hpp"
#include "couple.hpp"
#include "engine/core/endpoint_settings.hpp"
#include "fake_cuda.hpp"

using namespace zerohop;
using namespace zerohop::engine;
using namespace zerohop::testing;

namespace {

const DType kByte{kDTypeUInt, 8, 1};
using Bytes = std::vector<std::byte>;

EndpointOptions gpu_options(const char* name, const FakeCuda& cuda) {
  EndpointOptions chosen = options(name);
  chosen.cuda = cuda.table();
  chosen.gpu.staging_chunk = 4096;
  return chosen;
}

Bytes counted(std::size_t nbytes, unsigned first) {
  Bytes bytes(nbytes);
  for (std::size_t i = 0; i < nbytes; ++i)
    bytes[i] = static_cast<std::byte>(first + i * 7 + i / 97);
  return bytes;
}

struct Fixture {
  FakeCuda cuda;
  testing::AllGivenBack given_back{cuda};
  Endpoint left{gpu_options("left", cuda)};
  Endpoint right{gpu_options("right", cuda)};
  std::shared_ptr<Peer> to_right = left.connect(right.address().to_bytes(), soon());
  std::shared_ptr<Peer> to_left = right.accept(soon());

  Memory gpu_array(Endpoint& endpoint, const std::vector<std::int64_t>& shape,
                   RegistrationDemand demand = RegistrationDemand::automatic) {
    Layout layout = Layout::contiguous(0, kByte, shape);
    layout.address = cuda.add_bytes(layout.nbytes(), std::byte{0xEE});
    return endpoint.register_memory(layout, nullptr,
                                    {.writable = true, .device = "cuda:0", .demand = demand});
  }
  void put(const Memory& memory, const Bytes& bytes) {
    cuda.copies.write(memory.layout().address, bytes);
  }
  Bytes get(const Memory& memory) {
    return cuda.copies.read(memory.layout().address, memory.layout().nbytes());
  }
  static void finish(const std::shared_ptr<Transfer>& transfer) {
    REQUIRE(transfer->wait(soon()));
    (void)transfer->result();
  }
  static Memory slice(const Memory& memory, const std::vector<Index>& indices) {
    return memory.slice(indices);
  }
};

TransferOptions requiring(const char* kind) { return {{}, kind, {}}; }
TransferOptions notifying(const Notification& notification) { return {notification, "", {}}; }

template <typename Error>
std::string message_of(const std::function<void()>& call) {
  try {
    call();
  } catch (const Error& error) {
    return error.what();
  }
  return "nothing was thrown";
}

bool contains(const std::string& text, const std::string& part) {
  INFO(text);
  return text.find(part) != std::string::npos;
}

TEST_CASE_FIXTURE(Fixture, "a write and a read between two GPUs") {
  const Memory source = gpu_array(left, {300, 200});
  const Memory target = gpu_array(right, {300, 200});
  const Bytes bytes = counted(60000, 1);
  put(source, bytes);
  const RemoteMemory remote = target.remote();
  const Peer::Pair pair{&source, &remote};
  finish(to_right->write({&pair, 1}, {}));
  CHECK(get(target) == bytes);
  const Bytes others = counted(60000, 99);
  put(target, others);
  finish(to_right->read({&pair, 1}, {}));
  CHECK(get(source) == others);
}

TEST_CASE_FIXTURE(Fixture, "columns of a GPU's array go to a host's and back") {
  const Memory source = gpu_array(left, {100, 50});
  const Bytes bytes = counted(5000, 3);
  put(source, bytes);
  Memory target = right.empty(std::vector<std::int64_t>{100, 3}, kByte);
  const std::vector<Index> columns{Slice{}, Slice{10, 13}};
  const Memory part = slice(source, columns);
  const RemoteMemory remote = target.remote();
  const Peer::Pair pair{&part, &remote};
  finish(to_right->write({&pair, 1}, {}));
  auto* placed = reinterpret_cast<std::byte*>(target.layout().address);
  for (std::size_t row = 0; row < 100; ++row) {
    for (std::size_t i = 0; i < 3; ++i) {
      CHECK(placed[row * 3 + i] == bytes[row * 50 + 10 + i]);
      placed[row * 3 + i] = static_cast<std::byte>(row + i);
    }
  }
  finish(to_right->read({&pair, 1}, {}));
  const Bytes after = get(source);
  for (std::size_t row = 0; row < 100; ++row) {
    for (std::size_t i = 0; i < 50; ++i) {
      const bool inside = i >= 10 && i < 13;
      CHECK(after[row * 50 + i] ==
            (inside ? static_cast<std::byte>(row + i - 10) : bytes[row * 50 + i]));
    }
  }
}

TEST_CASE_FIXTURE(Fixture, "a notification comes behind its data, also of many pieces") {
  const Memory source = gpu_array(left, {64, 500});
  const Memory target = gpu_array(right, {64, 500});
  for (unsigned round = 1; round <= 20; ++round) {
    const Bytes bytes = counted(32000, round);
    put(source, bytes);
    std::vector<Memory> parts;
    std::vector<RemoteMemory> remotes;
    for (std::int64_t i = 0; i < 64; ++i) {
      parts.push_back(slice(source, {i}));
      remotes.push_back(slice(target, {i}).remote());
    }
    std::vector<Peer::Pair> pairs;
    for (std::size_t i = 0; i < 64; ++i) pairs.emplace_back(&parts[i], &remotes[i]);
    const auto transfer = to_right->write(pairs, notifying({7, round}));
    CHECK(right.wait_notify(7, 1, true, soon()) == Endpoint::Notified{7, round});
    CHECK(get(target) == bytes);
    finish(transfer);
  }
}

TEST_CASE_FIXTURE(Fixture, "what the default stream still has to do comes first") {
  const Memory source = gpu_array(left, {10000});
  const Memory target = gpu_array(right, {10000});
  const Bytes bytes = counted(10000, 5);
  cuda.copies.launch([this, &source, &bytes] {
    cuda.copies.overwrite(source.layout().address, bytes);  // the producer's kernel
  });
  const RemoteMemory remote = target.remote();
  const Peer::Pair pair{&source, &remote};
  finish(to_right->write({&pair, 1}, {}));
  CHECK(get(target) == bytes);
  cuda.copies.program_hangs = true;
  const auto call = [&] { (void)to_right->write({&pair, 1}, {{}, "", 0.05}); };
  CHECK(contains(message_of<TransferTimeout>(call), "default stream of cuda:0"));
  cuda.copies.program_hangs = false;
}

TEST_CASE_FIXTURE(Fixture, "the route is staged, says why, and is not called gpudirect") {
  const Memory source = gpu_array(left, {100});
  const Memory target = gpu_array(right, {100});
  const Memory host = right.empty(std::vector<std::int64_t>{100}, kByte);
  for (const RemoteMemory& remote : {target.remote(), host.remote()}) {
    const Route route = to_right->route(source, remote);
    CHECK(route.kind == "staged");
    CHECK(route.device == "soft0");
    CHECK(contains(route.reason, "no RDMA adapter"));
    const auto chunk = std::ranges::find(route.settings, "staging_chunk",
                                         [](const auto& setting) { return setting.first; });
    REQUIRE(chunk != route.settings.end());
    CHECK(std::get<std::int64_t>(chunk->second) == 4096);
  }
  CHECK(to_left->route(host, source.remote()).kind == "staged");
  const RemoteMemory remote = target.remote();
  const Peer::Pair pair{&source, &remote};
  const auto call = [&] { (void)to_right->write({&pair, 1}, requiring("gpudirect")); };
  CHECK(contains(message_of<RouteUnavailable>(call), "only 'staged' is"));
  finish(to_right->write({&pair, 1}, requiring("staged")));
  const auto register_it = [&] { (void)gpu_array(left, {100}, RegistrationDemand::peermem); };
  CHECK(contains(message_of<RegistrationError>(register_it), "nvidia-peermem"));
  CHECK(gpu_array(left, {100}, RegistrationDemand::staged).registration()->reason ==
        "it was asked for");
}

TEST_CASE_FIXTURE(Fixture, "an Endpoint's registration is that of what asks for no other") {
  EndpointOptions chosen = gpu_options("third", cuda);
  chosen.gpu.registration = RegistrationDemand::staged;
  Endpoint third(chosen);
  const std::vector<std::int64_t> shape{100};
  const auto registered = [&](std::optional<RegistrationDemand> demand) {
    Layout layout = Layout::contiguous(cuda.add_bytes(100), kByte, shape);
    return third.register_memory(layout, nullptr, {.device = "cuda:0", .demand = demand});
  };
  CHECK(registered({}).staged());
  CHECK(third.empty(shape, kByte, "cuda:0").staged());
  CHECK(!registered(RegistrationDemand::automatic).staged());  // soft0 copies itself
  CHECK(!third.empty(shape, kByte, "cuda:0", RegistrationDemand::automatic).staged());
  CHECK(third.empty(shape, kByte).on_host());
  const Memory asked = registered(RegistrationDemand::automatic);
  CHECK(third.grant(asked, {}).remote().staged_key == 0);  // like the memory that it is a right to
  CHECK(third.grant(registered({}), {}).remote().staged_key != 0);
  const Settings settings = settings_of(chosen, "");
  const auto shown = std::ranges::find(settings, "registration",
                                       [](const auto& setting) { return setting.first; });
  REQUIRE(shown != settings.end());
  CHECK(std::get<std::string>(shown->second) == "staged");
}

TEST_CASE_FIXTURE(Fixture, "atomics on a counter of a GPU") {
  Layout layout =
      Layout::contiguous(cuda.add_bytes(16), {kDTypeUInt, 64, 1}, std::vector<std::int64_t>{1});
  const Memory word =
      right.register_memory(layout, nullptr, {.writable = true, .device = "cuda:0"});
  for (std::uint64_t i = 0; i < 10; ++i) {
    const auto transfer = to_right->fetch_add(word.remote(), 4);
    REQUIRE(transfer->wait(soon()));
    CHECK(transfer->result() == 4 * i);
  }
  const auto transfer = to_right->compare_swap(word.remote(), 40, 1);
  REQUIRE(transfer->wait(soon()));
  CHECK(transfer->result() == 40);
  CHECK(get(word)[0] == std::byte{1});
}

TEST_CASE_FIXTURE(Fixture, "a copy that fails is the transfer's error, and the path recovers") {
  const Memory source = gpu_array(left, {50000});
  const Memory target = gpu_array(right, {50000});
  put(source, counted(50000, 8));
  const RemoteMemory remote = target.remote();
  const Peer::Pair pair{&source, &remote};
  finish(to_right->write({&pair, 1}, {}));
  cuda.error = 719;
  cuda.calls = 0;
  cuda.fail_at = 11;  // after the wait for the default stream: a copy, or a wait for one
  const auto failing = to_right->write({&pair, 1}, {});
  REQUIRE(failing->wait(soon()));
  const std::string text = message_of<VerbsError>([&] { (void)failing->result(); });
  CHECK((contains(text, "719") || contains(text, "REM_OP_ERR")));
  put(source, counted(50000, 9));
  finish(to_right->write({&pair, 1}, {}));
  CHECK(get(target) == counted(50000, 9));
}

TEST_CASE_FIXTURE(Fixture,
                  "memory that an endpoint makes on a GPU is zeroed, and lives with its views") {
  const std::vector<std::int64_t> shape{50, 100};
  const Memory source = gpu_array(left, shape);
  Memory target = right.empty(shape, kByte, "cuda:0");
  CHECK(target.device() == "cuda:0");
  CHECK(target.writable());
  CHECK(get(target) == Bytes(5000));
  put(source, counted(5000, 4));
  const RemoteMemory remote = target.remote();
  const Peer::Pair pair{&source, &remote};
  finish(to_right->write({&pair, 1}, requiring("staged")));
  CHECK(get(target) == counted(5000, 4));
  std::shared_ptr<void> view = target.pinned()->owner;  // as a DLPack consumer does
  target.close();
  CHECK(cuda.copies.read(remote.layout.address, 5000) == counted(5000, 4));
  CHECK(cuda.vmm.mapped() == 1);
  view.reset();
  const Deadline deadline = soon();
  while (cuda.vmm.physical() > 0 && !deadline.passed()) std::this_thread::yield();
  CHECK(cuda.vmm.physical() == 0);
}

TEST_CASE_FIXTURE(Fixture, "memory of a GPU that is closed is out of reach") {
  const Memory source = gpu_array(left, {100});
  Memory target = gpu_array(right, {100});
  const RemoteMemory remote = target.remote();
  target.close();
  const Peer::Pair pair{&source, &remote};
  const auto transfer = to_right->write({&pair, 1}, {});
  REQUIRE(transfer->wait(soon()));
  CHECK_THROWS_AS((void)transfer->result(), VerbsError);
  CHECK(cuda.copies.read(remote.layout.address, 100) == Bytes(100, std::byte{0xEE}));
}

}  // namespace
