// A right that several threads revoke at once: none returns before it is gone.
#include <doctest/doctest.h>

#include <array>
#include <chrono>
#include <future>
#include <memory>
#include <thread>
#include <utility>

#include "base/error.hpp"
#include "engine/memory/expiry.hpp"
#include "engine/memory/grant.hpp"

using namespace std::chrono_literals;
using namespace zerohop;
using namespace zerohop::engine;

namespace {

constexpr Extent kWhere{0x1000, 0x2000};

// GPU memory that the Endpoint copies, in the state of a running copy for a peer.
struct Copied {
  std::shared_ptr<StagedMemories> staged = std::make_shared<StagedMemories>();
  std::shared_ptr<const StagedMemories::Right> right = staged->open(kWhere, true);
  Memory memory = make();
  std::shared_ptr<const Pinned> copy = staged->borrow(right->key());

  Memory make() {
    auto regions = std::make_shared<Regions>();
    regions->set_staged(right);
    const auto pinned = std::make_shared<const Pinned>(std::move(regions), nullptr);
    staged->bind(*right, pinned);
    return Memory(EndpointId{}, Layout::bytes(kWhere.begin, kWhere.end - kWhere.begin), pinned, {});
  }
};

}  // namespace

TEST_CASE("revoking waits for another thread that revokes the same") {
  Copied copied;
  Grant grant(copied.memory);
  auto first = std::async(std::launch::async, [&] { grant.revoke(); });
  while (!copied.memory.closed()) std::this_thread::yield();
  CHECK_THROWS_AS((void)grant.remote(), RegistrationError);
  CHECK_FALSE(grant.revoked());
  auto revoked = std::async(std::launch::async, [&] {
    grant.revoke();
    return grant.revoked();
  });
  CHECK(revoked.wait_for(50ms) == std::future_status::timeout);
  CHECK_FALSE(grant.revoked());
  copied.copy.reset();
  CHECK(revoked.get());
  first.get();
  CHECK(grant.revoked());
}

TEST_CASE("memory that is closed again by the end of its owner does not wait for itself") {
  std::unique_ptr<Memory> memory;
  bool again = false;
  std::shared_ptr<void> owner(nullptr, [&](void*) {
    memory->close();
    again = memory->withdrawn();
  });
  memory = std::make_unique<Memory>(EndpointId{}, Layout::bytes(kWhere.begin, 0),
                                    std::make_shared<const Pinned>(nullptr, std::move(owner)),
                                    Memory::Kind{});
  CHECK_FALSE(again);
  memory->close();
  CHECK(again);
}

namespace {

bool have_no_right(const Copied& first, const Copied& second) {
  return first.staged->find(first.right->key(), kWhere, false) == nullptr &&
         second.staged->find(second.right->key(), kWhere, false) == nullptr;
}

}  // namespace

TEST_CASE("what is closed together waits together for copies") {
  Copied first, second;
  const std::array both{first.memory.weak(), second.memory.weak()};
  auto closed = std::async(std::launch::async, [&] { WeakMemory::close(both); });
  while (!have_no_right(first, second)) std::this_thread::yield();
  CHECK_FALSE(first.memory.withdrawn());  // neither waited for the copy before
  CHECK_FALSE(second.memory.withdrawn());
  CHECK(closed.wait_for(50ms) == std::future_status::timeout);
  second.copy.reset();
  first.copy.reset();
  closed.get();
  CHECK(first.memory.withdrawn());
  CHECK(second.memory.withdrawn());
}

TEST_CASE("what expires at the same time ends at the same time, whichever copy still runs") {
  Copied first, second;
  Expiry expiry;
  const auto now = Expiry::Clock::now();
  expiry.at(now, first.memory.weak());
  expiry.at(now, second.memory.weak());
  while (!have_no_right(first, second)) std::this_thread::yield();
  CHECK_FALSE(first.memory.withdrawn());
  CHECK_FALSE(second.memory.withdrawn());
  first.copy.reset();
  second.copy.reset();
  expiry.stop();
}

TEST_CASE("once stopped nothing expires any more") {
  Copied copied;
  copied.copy.reset();
  Expiry expiry;
  expiry.stop();
  expiry.at(Expiry::Clock::now(), copied.memory.weak());
  CHECK_FALSE(expiry.runs());
  CHECK_FALSE(copied.memory.closed());
}
