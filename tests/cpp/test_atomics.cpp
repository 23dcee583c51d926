// A device without atomics is not asked for them, and callers that want them get a clear error.
#include <doctest/doctest.h>

#include <cerrno>
#include <stdexcept>
#include <string>

#include "base/error.hpp"
#include "engine/memory/memory.hpp"
#include "engine/memory/registrations.hpp"
#include "engine/path/verbs/atomics.hpp"
#include "fake_verbs.hpp"
#include "rdma/queue_pair.hpp"

namespace zerohop::engine {
namespace {

constexpr int kAtomic = IBV_ACCESS_REMOTE_ATOMIC;

struct Fixture {
  testing::FakeVerbs fake;
  std::uint64_t word = 0;

  std::shared_ptr<rdma::Device> open() { return rdma::Device::open(fake.table(), "fake0"); }
  std::shared_ptr<Rail> make_rail(RailIndex index, ibv_atomic_cap atomics) {
    fake.device.atomic_cap = atomics;
    return std::make_shared<Rail>(index, rdma::ProtectionDomain::create(open()), "it is a fake");
  }

  RemoteMemory register_word(bool writable = true) {
    return register_word({make_rail(0, fake.device.atomic_cap)}, writable);
  }
  RemoteMemory register_word(Rails rails, bool writable = true) {
    Registrations registrations(std::move(rails), nullptr, std::make_shared<LiveRegions>());
    const auto address = reinterpret_cast<std::uint64_t>(&word);
    auto regions = registrations.find_or_create({address, address + 8}, writable, true);
    const std::int64_t one = 1;
    const Layout layout = Layout::contiguous(address, {kDTypeUInt, 64, 1}, {&one, 1});
    auto pinned = std::make_shared<const Pinned>(std::move(regions), nullptr);
    return Memory({}, layout, std::move(pinned), {.writable = writable, .registration = nullptr})
        .remote();
  }
  unsigned access_of_queue_pair() {
    const auto domain = rdma::ProtectionDomain::create(open());
    const auto queue = rdma::CompletionQueue::create(open(), 16);
    rdma::QueuePair::create(domain, queue, queue)->to_init();
    return fake.transitions.back().first.qp_access_flags;
  }
  std::string refusal(const RemoteMemory& memory) {
    try {
      check_atomics(*make_rail(0, fake.device.atomic_cap), memory);
    } catch (const RouteUnavailable& error) {
      return error.what();
    }
    return "";
  }
};

TEST_CASE_FIXTURE(Fixture, "a device with atomics is asked for them") {
  const RemoteMemory memory = register_word();
  CHECK(memory.access == (kRemoteRead | kRemoteWrite));
  CHECK((fake.registered_access & kAtomic) != 0);
  CHECK((access_of_queue_pair() & kAtomic) != 0);
  CHECK(refusal(memory) == "");
}

TEST_CASE_FIXTURE(Fixture, "a device without atomics registers and connects without them") {
  fake.device.atomic_cap = IBV_ATOMIC_NONE;
  const RemoteMemory memory = register_word();
  CHECK((fake.registered_access & kAtomic) == 0);
  CHECK((fake.registered_access & IBV_ACCESS_REMOTE_WRITE) != 0);
  CHECK((access_of_queue_pair() & kAtomic) == 0);
  CHECK((access_of_queue_pair() & IBV_ACCESS_REMOTE_WRITE) != 0);
  CHECK((memory.access & kRemoteNoAtomics) != 0);
  CHECK((RemoteMemory::from_bytes(memory.to_bytes()).access & kRemoteNoAtomics) != 0);
}

TEST_CASE_FIXTURE(Fixture, "atomics are refused whichever of the two devices has none") {
  const RemoteMemory with_atomics = register_word();
  fake.device.atomic_cap = IBV_ATOMIC_NONE;
  const RemoteMemory without = register_word();
  CHECK(refusal(with_atomics).find("device fake0 has none (atomic_cap is NONE)") !=
        std::string::npos);
  fake.device.atomic_cap = IBV_ATOMIC_HCA;
  CHECK(refusal(without).find("the peer's device has none (atomic_cap is NONE)") !=
        std::string::npos);
  CHECK_THROWS_AS(
      check_atomics(*make_rail(0, fake.device.atomic_cap), register_word(/*writable=*/false)),
      std::invalid_argument);
}

TEST_CASE_FIXTURE(Fixture, "of several rails the first decides, as atomics take that one") {
  const RemoteMemory first =
      register_word({make_rail(0, IBV_ATOMIC_HCA), make_rail(1, IBV_ATOMIC_NONE)});
  CHECK((fake.registered_access & kAtomic) == 0);  // of the second
  CHECK((first.access & kRemoteNoAtomics) == 0);
  const RemoteMemory second =
      register_word({make_rail(0, IBV_ATOMIC_NONE), make_rail(1, IBV_ATOMIC_HCA)});
  CHECK((fake.registered_access & kAtomic) != 0);
  CHECK((second.access & kRemoteNoAtomics) != 0);
}

}  // namespace
}  // namespace zerohop::engine
