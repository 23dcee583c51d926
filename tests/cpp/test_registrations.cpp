// Registrations during a slow driver call: which threads wait for it, and which do not.
#include <doctest/doctest.h>

#include <array>
#include <atomic>
#include <cerrno>
#include <cstddef>
#include <future>
#include <thread>

#include "base/error.hpp"
#include "engine/memory/registrations.hpp"
#include "eventually.hpp"
#include "fake_verbs.hpp"
#include "gpu_fixture.hpp"

namespace zerohop::engine {
namespace {

using testing::eventually;

// A driver that works on the registration at one address until told to continue.
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

struct Fixture {
  FakeVerbs verbs;
  std::array<std::byte, 8192> memory{};
  const std::uint64_t here = reinterpret_cast<std::uint64_t>(memory.data());
  const std::uint64_t there = here + 4096;
  std::unique_ptr<Registrations> registrations;

  Fixture() {
    verbs.device.max_mr_size = 1 << 20;
    auto domain = rdma::ProtectionDomain::create(rdma::Device::open(verbs.table(), "fake0"));
    registrations = std::make_unique<Registrations>(
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

TEST_CASE_FIXTURE(Fixture, "a driver that takes its time for one array holds up no other") {
  SlowDriver driver(verbs, here);
  auto slow = get_apart(here);
  driver.await();
  const auto other = get(there);
  CHECK(other->covered().begin == there);
  CHECK(get(there) == other);  // known registrations are found meanwhile
  driver.go_on();
  CHECK(slow.get()->covered().begin == here);
}

TEST_CASE_FIXTURE(Fixture, "the same memory is registered once, by whomever at once") {
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

TEST_CASE_FIXTURE(Fixture, "a thread that waited for a failed registration tries itself") {
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
  const Registered one = first.get();
  CHECK(second.get().region.get() == one.region.get());
  CHECK(stats().entries == 2);
}

}  // namespace
}  // namespace zerohop::engine
