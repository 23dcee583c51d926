// How GPU memory is registered, from facts alone; and registrations during a slow driver call:
// which threads wait for it, and which do not.
#include <doctest/doctest.h>

#include <array>
#include <atomic>
#include <cerrno>
#include <cstddef>
#include <future>
#include <stdexcept>
#include <string>
#include <utility>

#include "base/error.hpp"
#include "engine/memory/host_registrations.hpp"
#include "engine/memory/registration_choice.hpp"
#include "eventually.hpp"
#include "fake_verbs.hpp"
#include "gpu_fixture.hpp"

namespace zerohop::testing {
namespace {

using namespace engine;
using gpu::MemoryKind;
using Way = RegistrationWay;
using Demand = RegistrationDemand;

// --- the choice ---

// Everything works: each test removes something.
PairFacts sound_pair() {
  PairFacts pair;
  pair.adapter = "mlx5_0";
  pair.kernel = 6001;
  pair.peermem = "nvidia_peermem";
  pair.library_has_dmabuf = true;
  pair.dmabuf = {.made = true};
  pair.peermem_trial = {.made = true};
  pair.relaxed_ordering = true;
  pair.gpu.name = "Fake GPU";
  pair.gpu.gpudirect = true;
  pair.gpu.dmabuf = true;
  pair.gpu.bar1_nbytes = std::uint64_t{1} << 30;
  return pair;
}

MemoryFacts sound_memory() {
  return {.kind = MemoryKind::plain, .gpudirect_capable = true, .chunks = 1, .nbytes = 4096};
}

struct Case {
  PairFacts pair = sound_pair();
  MemoryFacts memory = sound_memory();
  RegistrationOrder order;

  RegistrationChoice choose(Demand demand) {
    order.demand = demand;
    return choose_registration(pair, memory, order);
  }
};

void check_says(const RegistrationChoice& choice, Way way, const std::string& words) {
  CAPTURE(choice.reason);
  CHECK(std::string(way_name(choice.way)) == way_name(way));
  CHECK(contains(choice.reason, words));
}

TEST_CASE("dma-buf comes first, and each way can be had by asking for it") {
  Case c;
  check_says(c.choose(Demand::automatic), Way::dmabuf, "mlx5_0 registers memory of cuda:0");
  check_says(c.choose(Demand::automatic), Way::dmabuf, "through dma-buf");
  check_says(c.choose(Demand::dmabuf), Way::dmabuf, "dma-buf");
  check_says(c.choose(Demand::peermem), Way::peermem, "nvidia_peermem");
  check_says(c.choose(Demand::staged), Way::staged, "asked for");
}

// Without dma-buf the choice is peermem, with the reason; a demand for dma-buf is refused with the
// remedy; without peermem as well it is staged, with both reasons.
void check_no_dmabuf(Case c, const std::string& fix) {
  check_says(c.choose(Demand::automatic), Way::peermem, fix);
  check_says(c.choose(Demand::dmabuf), Way::refused, fix);
  check_says(c.choose(Demand::peermem), Way::peermem, "nvidia_peermem");
  c.pair.peermem = "";
  check_says(c.choose(Demand::automatic), Way::staged, fix);
  check_says(c.choose(Demand::automatic), Way::staged, "modprobe nvidia-peermem");
}

TEST_CASE("each lack of dma-buf is named with its fix") {
  Case c;
  SUBCASE("closed kernel modules") {
    c.pair.gpu.dmabuf = false;
    check_no_dmabuf(c, "open kernel modules (nvidia-open)");
  }
  SUBCASE("old library") {
    c.pair.library_has_dmabuf = false;
    check_no_dmabuf(c, "rdma-core 34");
  }
  SUBCASE("old kernel") {
    c.pair.kernel = 5011;
    check_no_dmabuf(c, "Linux 5.11 does not register dma-bufs: boot 5.12");
  }
  SUBCASE("the export fails") {
    c.pair.dmabuf.cuda_error = 801;
    check_no_dmabuf(c, "CUDA error 801");
  }
  SUBCASE("chunks that do not go together") {
    c.pair.dmabuf.cuda_error = 1;
    c.memory.chunks = 2;
    check_says(c.choose(Demand::automatic), Way::staged, "different properties");
    check_says(c.choose(Demand::dmabuf), Way::refused, "register it in parts");
  }
  SUBCASE("the trial fails") {
    const std::pair<int, const char*> fixes[] = {
        {EOPNOTSUPP, "its driver does not offer it"},
        {EPROTONOSUPPORT, "its driver does not offer it"},  // an older library's word for it
        {ENOSYS, "its driver does not offer it"},           // a provider without the function
        {ENOMEM, "BAR1"},
        {EACCES, "/dev/infiniband/uverbs"},
        {EPERM, "/dev/infiniband/uverbs"},
        {EFAULT, "it cannot map what the NVIDIA driver exports"},
        {EIO, "errno 5"},
    };
    for (const auto& [error_number, fix] : fixes) {
      c.pair.dmabuf.error_number = error_number;
      check_no_dmabuf(c, fix);
    }
    c.pair.dmabuf.error_number = EFAULT;
    CHECK(!contains(c.choose(Demand::dmabuf).reason, "DOCA-OFED"));
    CHECK(!contains(c.choose(Demand::dmabuf).reason, "use dma-buf"));
  }
  SUBCASE("not tried") {
    c.pair.dmabuf.made = false;
    check_no_dmabuf(c, "not tried");
  }
}

TEST_CASE("each lack of peer memory is named with its fix") {
  Case c;
  SUBCASE("module not loaded") {
    c.pair.peermem = "";
    check_says(c.choose(Demand::peermem), Way::refused, "`modprobe nvidia-peermem`");
  }
  SUBCASE("several chunks") {
    c.memory.kind = MemoryKind::vmm;
    c.memory.chunks = 3;
    check_says(c.choose(Demand::peermem), Way::refused, "3 chunks");
  }
  SUBCASE("the trial fails") {
    const std::pair<int, const char*> fixes[] = {
        {EFAULT, "DOCA-OFED"},  // an RDMA driver that does not use it
        {ENOMEM, "through nvidia_peermem"},
        {ENOMEM, "(BAR1) or the adapter's memory is used up"},
        {EPERM, "/dev/infiniband/uverbs"},
        {ENOSYS, "its driver does not offer it"},
    };
    for (const auto& [error_number, fix] : fixes) {
      c.pair.peermem_trial.error_number = error_number;
      check_says(c.choose(Demand::peermem), Way::refused, fix);
    }
  }
  check_says(c.choose(Demand::automatic), Way::dmabuf, "dma-buf");
}

// No way at all: staged, or refused on demand; the remedy of the one cause appears once.
void check_unreachable(Case c, const std::string& fix) {
  check_says(c.choose(Demand::automatic), Way::staged, fix);
  CHECK(!contains(c.choose(Demand::automatic).reason, "no peer memory"));
  check_says(c.choose(Demand::dmabuf), Way::refused, fix);
  check_says(c.choose(Demand::peermem), Way::refused, fix);
  check_says(c.choose(Demand::staged), Way::staged, "asked for");
}

TEST_CASE("memory that no adapter reaches is staged, with the fix") {
  const std::pair<void (*)(Case&), const char*> cases[] = {
      {[](Case& c) { c.memory = {.kind = MemoryKind::managed, .nbytes = 4096}; },
       "managed memory migrates"},
      {[](Case& c) { c.memory = {.kind = MemoryKind::pool, .nbytes = 4096}; },
       "cupy.cuda.set_allocator"},
      {[](Case& c) { c.pair.gpu.gpudirect = false; }, "does not support GPUDirect RDMA"},
      {[](Case& c) {
         c.memory.kind = MemoryKind::vmm;
         c.memory.gpudirect_capable = false;
       },
       "gpuDirectRDMACapable"},
      {[](Case& c) {
         c.memory = {
             .kind = MemoryKind::vmm, .gpudirect_capable = false, .chunks = 3, .nbytes = 4096};
       },
       "part of the 3 chunks that the array lies across was made without"},
      {[](Case& c) { c.memory.gpudirect_capable = false; }, "not open to adapters"},
      {[](Case& c) { c.memory.nbytes = (std::uint64_t{1} << 30) + 1; }, "Resizable BAR"},
  };
  for (const auto& [spoil, fix] : cases) {
    CAPTURE(std::string(fix));
    Case c;
    spoil(c);
    check_unreachable(c, fix);
  }
}

TEST_CASE("an unknown size of BAR1 refuses nothing") {
  Case c;
  c.pair.gpu.bar1_nbytes.reset();
  c.memory.nbytes = std::uint64_t{1} << 40;
  check_says(c.choose(Demand::automatic), Way::dmabuf, "dma-buf");
}

TEST_CASE("host memory and addresses that CUDA does not know are refused") {
  Case c;
  for (const Demand demand : {Demand::automatic, Demand::dmabuf, Demand::peermem, Demand::staged}) {
    c.memory.kind = MemoryKind::pinned;
    check_says(c.choose(demand), Way::refused, "pinned host memory");
    c.memory.kind = MemoryKind::unknown;
    check_says(c.choose(demand), Way::refused, "unknown to CUDA");
  }
}

TEST_CASE("relaxed ordering is used where the adapter takes it, unless it is switched off") {
  Case c;
  CHECK(c.choose(Demand::automatic).relaxed_ordering);
  check_says(c.choose(Demand::automatic), Way::dmabuf, "relaxed ordering asked for");
  CHECK(!c.choose(Demand::staged).relaxed_ordering);
  c.order.relaxed_ordering = RelaxedOrdering::off;
  CHECK(!c.choose(Demand::automatic).relaxed_ordering);
  c.pair.relaxed_ordering = false;
  c.order.relaxed_ordering = RelaxedOrdering::automatic;
  CHECK(!c.choose(Demand::automatic).relaxed_ordering);
  c.order.relaxed_ordering = RelaxedOrdering::on;
  check_says(c.choose(Demand::automatic), Way::refused, "leave it at 2");
  check_says(c.choose(Demand::staged), Way::staged, "asked for");
  c.pair.relaxed_ordering = true;
  CHECK(c.choose(Demand::peermem).relaxed_ordering);
}

TEST_CASE("Data Direct goes with dma-buf alone") {
  Case c;
  c.pair.data_direct = true;
  CHECK(c.choose(Demand::automatic).data_direct);
  check_says(c.choose(Demand::automatic), Way::dmabuf, "Data Direct");
  CHECK(!c.choose(Demand::peermem).data_direct);
}

TEST_CASE("the words for a demand are checked") {
  CHECK(parse_registration("auto") == Demand::automatic);
  CHECK_THROWS_AS(parse_registration(""), std::invalid_argument);
  for (const char* word : {"dmabuf", "peermem", "staged"}) {
    Case c;
    CHECK(way_name(c.choose(parse_registration(word)).way) == std::string(word));
    CHECK(demand_name(parse_registration(word)) == std::string(word));
  }
  CHECK_THROWS_AS(parse_registration("dma-buf"), std::invalid_argument);
}

// --- slow drivers ---

// A driver that works on the registration at one address until asked to continue.
class SlowDriver {
 public:
  SlowDriver(FakeVerbs& verbs, std::uint64_t address) {
    verbs.registering = [this, address](std::uint64_t at) {
      if (at != address || blocked_.exchange(true)) return;
      begun_.set_value();
      go_on_.get_future().wait();
    };
  }
  void await() { begun_.get_future().wait(); }
  void go_on() { go_on_.set_value(); }

 private:
  std::atomic<bool> blocked_{false};  // the first one only
  std::promise<void> begun_;
  std::promise<void> go_on_;
};

struct HostMemory {
  FakeVerbs verbs;
  std::array<std::byte, 8192> memory{};
  const std::uint64_t here = reinterpret_cast<std::uint64_t>(memory.data());
  const std::uint64_t there = here + 4096;
  std::unique_ptr<HostRegistrations> registrations;

  HostMemory() {
    verbs.device.max_mr_size = 1 << 20;
    auto domain = rdma::ProtectionDomain::create(rdma::Device::open(verbs.table(), "fake0"));
    registrations = std::make_unique<HostRegistrations>(
        Rails{std::make_shared<Rail>(0, std::move(domain), "it is a fake")}, nullptr,
        std::make_shared<LiveRegions>());
  }
  std::shared_ptr<const Regions> get(std::uint64_t at, std::uint64_t nbytes = 4096) {
    return registrations->find_or_create({at, at + nbytes}, /*writable=*/true, /*shared=*/true);
  }
  auto get_apart(std::uint64_t at, std::uint64_t nbytes = 4096) {
    return std::async(std::launch::async, [=, this] { return get(at, nbytes); });
  }
};

TEST_CASE_FIXTURE(HostMemory, "a driver that takes its time for one array holds up no other") {
  SlowDriver driver(verbs, here);
  auto slow = get_apart(here);
  driver.await();
  const auto other = get(there);
  CHECK(other->covered().begin == there);
  CHECK(get(there) == other);  // known registrations are found meanwhile
  driver.go_on();
  CHECK(slow.get()->covered().begin == here);
}

TEST_CASE_FIXTURE(HostMemory, "the same memory is registered once, by whomever at once") {
  SlowDriver driver(verbs, here);
  std::atomic<int> registered{0};
  verbs.registering = [&, slow = verbs.registering](std::uint64_t at) {
    ++registered;
    slow(at);
  };
  auto first = get_apart(here);
  driver.await();
  auto second = get_apart(here);
  auto part = get_apart(here + 64, 64);
  driver.go_on();
  const auto regions = first.get();
  CHECK(second.get() == regions);
  CHECK(part.get() == regions);
  CHECK(registered == 1);
}

TEST_CASE_FIXTURE(HostMemory, "a thread that waited for a failed registration tries itself") {
  SlowDriver driver(verbs, here);
  verbs.fail_at = verbs.calls + 1;
  verbs.error_number = ENOMEM;
  auto first = get_apart(here);
  driver.await();
  auto second = get_apart(here);
  driver.go_on();
  CHECK_THROWS_AS(first.get(), RegistrationError);
  CHECK(second.get()->covered().begin == here);
}

TEST_CASE_FIXTURE(GpuFixture, "a driver that takes its time for one GPU array holds up no other") {
  (void)get(kBase, 4096);  // the trials
  SlowDriver driver(verbs, kBase + kMiB / 2);
  auto slow = std::async(std::launch::async, [this] {
    return get(kBase + kMiB / 2, 4096, Demand::automatic, /*shared=*/false);
  });
  driver.await();
  CHECK(get(kBase + 8192, 4096).region->nbytes() == 4096);
  CHECK(registrations->device(0)->ordinal() == 0);
  CHECK(registrations->pair_facts(0).lasting);
  driver.go_on();
  CHECK(slow.get().region->nbytes() == 4096);
}

TEST_CASE_FIXTURE(GpuFixture, "a trial of a GPU and an adapter holds up nobody") {
  SlowDriver driver(verbs, kBase);
  auto slow = std::async(std::launch::async, [this] { return get(kBase, 4096); });
  driver.await();
  CHECK(registrations->device(0)->ordinal() == 0);
  CHECK_FALSE(registrations->pair_facts(0).lasting);
  driver.go_on();
  CHECK(slow.get().region->nbytes() == 4096);
}

TEST_CASE_FIXTURE(GpuFixture, "the same memory of a GPU is registered once, by whomever at once") {
  (void)get(kBase, 4096);
  const std::uint64_t at = kBase + kMiB / 2;
  SlowDriver driver(verbs, at);
  auto first = std::async(std::launch::async, [&] { return get(at, 4096); });
  driver.await();
  const int calls = cuda.calls;
  auto second = std::async(std::launch::async, [&] { return get(at, 4096); });
  CHECK(eventually([&] { return cuda.calls > calls; }));  // it queries the memory
  driver.go_on();
  const GpuRegion one = first.get();
  CHECK(second.get().region.get() == one.region.get());
  CHECK(stats().entries == 2);
}

}  // namespace
}  // namespace zerohop::testing
