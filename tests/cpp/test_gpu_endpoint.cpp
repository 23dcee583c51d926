// Endpoints on soft0 with arrays in a fake GPU's memory, and messages of such arrays, where the
// device copies itself (soft0) and where both endpoints stage.
#include <doctest/doctest.h>

#include <algorithm>
#include <string>
#include <thread>
#include <vector>

#include "engine/core/endpoint_settings.hpp"
#include "gpu_couple.hpp"

namespace zerohop::testing {
namespace {

using namespace engine;

TEST_CASE_FIXTURE(CopiedCouple, "what the default stream still has to do comes first") {
  const auto [source, target] = arrays({10000});
  const Bytes bytes = counted(10000, 5);
  cuda.copies.launch([this, &source, &bytes] {
    cuda.copies.overwrite(source.layout().address, bytes);  // the producer's kernel
  });
  const RemoteMemory remote = target.remote();
  finish(write(*to_right, source, remote));
  CHECK(get(target) == bytes);
  cuda.copies.program_hangs = true;
  const auto call = [&] { (void)write(*to_right, source, remote, {{}, "", 0.05}); };
  CHECK(contains(message_of<TransferTimeout>(call), "default stream of cuda:0"));
  cuda.copies.program_hangs = false;
}

TEST_CASE_FIXTURE(CopiedCouple, "the route is staged, says why, and is not called gpudirect") {
  const auto [source, target] = arrays({100});
  const Memory host = host_array(right, {100});
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
  const auto call = [&] { (void)write(*to_right, source, remote, by("gpudirect")); };
  CHECK(contains(message_of<RouteUnavailable>(call), "only 'staged' is"));
  finish(write(*to_right, source, remote, by("staged")));
  const auto registered = [&](RegistrationDemand demand) {
    return left.register_memory(source.layout(), nullptr, {.device = "cuda:0", .demand = demand});
  };
  const auto by_peermem = [&] { (void)registered(RegistrationDemand::peermem); };
  CHECK(contains(message_of<RegistrationError>(by_peermem), "nvidia-peermem"));
  CHECK(registered(RegistrationDemand::staged).choice()->reason == "it was asked for");
}

TEST_CASE_FIXTURE(CopiedCouple, "an Endpoint's registration is that of what asks for no other") {
  EndpointOptions chosen = with_gpu(options("third"), cuda);
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

TEST_CASE_FIXTURE(CopiedCouple, "atomics on a counter of a GPU") {
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

TEST_CASE_FIXTURE(CopiedCouple,
                  "a copy that fails is the transfer's error, and the path recovers") {
  const auto [source, target] = arrays({50000});
  put(source, counted(50000, 8));
  const RemoteMemory remote = target.remote();
  finish(write(*to_right, source, remote));
  cuda.error = 719;
  cuda.calls = 0;
  cuda.fail_at = 11;  // after the wait for the default stream: a copy, or a wait for one
  const auto failing = write(*to_right, source, remote);
  const std::string text = failure_of<VerbsError>(failing).what();
  CHECK((contains(text, "719") || contains(text, "REM_OP_ERR")));
  put(source, counted(50000, 9));
  finish(write(*to_right, source, remote));
  CHECK(get(target) == counted(50000, 9));
}

TEST_CASE_FIXTURE(CopiedCouple,
                  "memory that an endpoint makes on a GPU is zeroed, and lives with its views") {
  const std::vector<std::int64_t> shape{50, 100};
  const Memory source = array(left, shape);
  Memory target = right.empty(shape, kByte, "cuda:0");
  CHECK(target.device() == "cuda:0");
  CHECK(target.writable());
  CHECK(get(target) == Bytes(5000));
  put(source, counted(5000, 4));
  const RemoteMemory remote = target.remote();
  finish(write(*to_right, source, remote, by("staged")));
  CHECK(get(target) == counted(5000, 4));
  std::shared_ptr<void> view = target.registration()->owner;  // as a DLPack consumer does
  target.close();
  CHECK(cuda.copies.read(remote.layout.address, 5000) == counted(5000, 4));
  CHECK(cuda.vmm.mapped() == 1);
  view.reset();
  CHECK(eventually([this] { return cuda.vmm.physical() == 0; }));
}

TEST_CASE_FIXTURE(CopiedCouple, "memory of a GPU that is closed is out of reach") {
  auto [source, target] = arrays({100});
  const RemoteMemory remote = target.remote();
  target.close();
  const auto transfer = write(*to_right, source, remote);
  (void)failure_of<VerbsError>(transfer);
  CHECK(cuda.copies.read(remote.layout.address, 100) == Bytes(100, std::byte{0xEE}));
}

// --- messages ---

constexpr std::int64_t kShort = 5000;  // travels inside a message
constexpr std::int64_t kLong = 100000;

struct Ends {
  bool from_gpu;
  bool to_gpu;
};

constexpr Ends kAll[] = {{true, true}, {true, false}, {false, true}};

Memory make(GpuCouple& both, engine::Endpoint& endpoint, bool on_gpu,
            const std::vector<std::int64_t>& shape) {
  return on_gpu ? both.array(endpoint, shape) : host_array(endpoint, shape);
}

void check_message(GpuCouple& both, const Ends& ends, std::int64_t nbytes, bool early) {
  const Memory from = make(both, both.left, ends.from_gpu, {nbytes});
  const Memory to = make(both, both.right, ends.to_gpu, {nbytes});
  const Bytes bytes = counted(static_cast<std::size_t>(nbytes), 1 + (early ? 1 : 0));
  both.put(from, bytes);
  TransferPtr received;
  if (early) received = both.to_left->receive(to, 4);
  const auto sent = both.to_right->send(from, 4);
  if (!early) received = both.to_left->receive(to, 4);
  finish(received);
  CHECK(received->result() == static_cast<std::uint64_t>(nbytes));
  finish(sent);
  CHECK(both.get(to) == bytes);
}

TEST_CASE_TEMPLATE("messages of every length come to and from GPUs", Both, StagedCouple,
                   CopiedCouple) {
  Both both;
  for (const Ends ends : kAll) {
    for (const std::int64_t nbytes : {std::int64_t{0}, std::int64_t{1}, kShort, kLong}) {
      for (const bool early : {true, false}) check_message(both, ends, nbytes, early);
    }
  }
}

TEST_CASE_TEMPLATE("columns are sent and received, and a short message fills the begin", Both,
                   StagedCouple, CopiedCouple) {
  Both both;
  for (const std::int64_t rows : {std::int64_t{100}, std::int64_t{7000}}) {
    const auto [from, to] = both.arrays({rows, 8});
    const Bytes bytes = counted(static_cast<std::size_t>(rows * 8), 9);
    both.put(from, bytes);
    const std::vector<Index> columns{Slice{}, Slice{2, 5}};
    const auto received = both.to_left->receive(to.slice(columns), 1);
    const auto sent = both.to_right->send(from.slice(columns), 1);
    finish(received);
    finish(sent);
    Bytes wanted(bytes.size(), std::byte{0xEE});
    for (std::size_t i = 0; i < bytes.size(); ++i) {
      if (i % 8 >= 2 && i % 8 < 5) wanted[i] = bytes[i];
    }
    CHECK(both.get(to) == wanted);
  }
  const Memory from = both.array(both.left, {300});
  const Memory to = both.array(both.right, {1000});
  const auto received = both.to_left->receive(to, 2);
  finish(both.to_right->send(from, 2));
  finish(received);
  CHECK(received->result() == 300);
}

TEST_CASE_TEMPLATE("messages keep their order, whatever memory they come from", Both, StagedCouple,
                   CopiedCouple) {
  Both both;
  std::vector<Memory> sources;
  std::vector<TransferPtr> sent;
  for (unsigned i = 0; i < 24; ++i) {
    sources.push_back(make(both, both.left, i % 3 != 0, {i % 4 == 0 ? kLong : kShort}));
    both.put(sources.back(), counted(i % 4 == 0 ? kLong : kShort, i));
    sent.push_back(both.to_right->send(sources.back(), 5));
  }
  for (unsigned i = 0; i < 24; ++i) {
    const std::int64_t nbytes = i % 4 == 0 ? kLong : kShort;
    const Memory to = make(both, both.right, i % 2 == 0, {nbytes});
    finish(both.to_left->receive(to, 5));
    CHECK(both.get(to) == counted(static_cast<std::size_t>(nbytes), i));
  }
  for (const auto& transfer : sent) finish(transfer);
}

TEST_CASE("the program's stream comes before a message is taken from its GPU") {
  StagedCouple both;
  const Memory from = both.array(both.left, {kShort});
  const Memory to = host_array(both.right, {kShort});
  const Bytes bytes = counted(kShort, 6);
  both.cuda.copies.launch([&] { both.cuda.copies.overwrite(from.layout().address, bytes); });
  finish(both.to_right->send(from, 0));
  finish(both.to_left->receive(to, 0));
  CHECK(both.get(to) == bytes);
}

TEST_CASE("what the receiver's GPU cannot take is an error at both ends, and no other's") {
  StagedCouple both;
  const Memory from = host_array(both.left, {kLong});
  const Memory to = both.array(both.right, {kLong});
  const auto sent = both.to_right->send(from, 3);
  both.cuda.copies.hangs = false;
  both.cuda.error = 700;
  both.cuda.calls = 0;
  both.cuda.fail_at = 60;  // after the creation of the ring
  const auto received = both.to_left->receive(to, 3);
  (void)failure_of<CudaError>(received);
  CHECK(contains(failure_of<VerbsError>(sent).what(), "REM_OP_ERR"));
  both.cuda.fail_at = 0;
  check_message(both, {true, true}, kLong, true);
}

TEST_CASE("a message that is too long waits for a larger array") {
  StagedCouple both;
  const Memory from = both.array(both.left, {kLong});
  const Memory to = both.array(both.right, {kShort});
  const auto sent = both.to_right->send(from, 3);
  const auto receive_short = [&] { finish(both.to_left->receive(to, 3)); };
  CHECK_THROWS_AS(receive_short(), std::invalid_argument);
  const Memory larger = both.array(both.right, {kLong});
  finish(both.to_left->receive(larger, 3));
  finish(sent);
}

}  // namespace
}  // namespace zerohop::testing
