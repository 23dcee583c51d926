// When the progress thread polls operations that others have in progress.
#include <doctest/doctest.h>

#include <atomic>
#include <chrono>
#include <memory>

#include "couple.hpp"
#include "engine/core/device_choice.hpp"
#include "engine/wait/poller.hpp"

namespace zerohop::testing {
namespace {

struct Counted : engine::Poller::Source {
  std::atomic<int> polls{0};
  bool pending() const noexcept override { return true; }
  void poll() noexcept override { ++polls; }
};

TEST_CASE("the progress thread keeps out of the way of work that is begun one after the other") {
  const auto sleepers = std::make_shared<std::atomic<int>>(0);
  engine::Poller poller({engine::open_device("soft0")}, std::chrono::microseconds(200), nullptr,
                        sleepers);
  const auto source = std::make_shared<Counted>();
  poller.add(source);
  (void)poller.serve();
  CHECK(source->polls == 1);
  poller.note_begun();
  CHECK(poller.serve() == std::chrono::milliseconds(0));
  CHECK(source->polls == 1);
  CHECK(poller.looks());  // polls again, by itself
  (void)poller.serve();   // none was begun meanwhile
  CHECK(source->polls == 2);
  poller.note_begun();
  *sleepers = 1;  // relies on the progress thread
  (void)poller.serve();
  CHECK(source->polls == 3);
}

TEST_CASE("while callers poll it is known that the progress thread looks within a millisecond") {
  engine::Poller poller({engine::open_device("soft0")}, std::chrono::microseconds(200), nullptr);
  CHECK_FALSE(poller.looks_soon());
  int looks = 0;
  REQUIRE(poller.wait([&] { return ++looks > 3; }, soon()));
  CHECK(poller.serve() == std::chrono::milliseconds(1));
  CHECK_FALSE(poller.looks());
  CHECK(poller.looks_soon());
  (void)poller.serve();  // nothing is pending, and nobody has polled since
  CHECK_FALSE(poller.looks_soon());
}

}  // namespace
}  // namespace zerohop::testing
