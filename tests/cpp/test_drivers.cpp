// Slow drivers delay no peer: the thread that answers peers never calls one.
#include <doctest/doctest.h>

#include <string>
#include <thread>

#include "base/error.hpp"
#include "control_stranger.hpp"
#include "eventually.hpp"
#include "gpu_couple.hpp"
#include "station.hpp"

namespace zerohop::testing {
namespace {

using namespace zerohop::engine;

// During a driver call for the other end, whose process keeps answering.
void check_that_it_answers(Peer& peer) {
  for (int i = 0; i < 50; ++i) CHECK_FALSE(peer.lookup("nothing", soon(), /*now=*/true));
}

// Blocks every driver call of a Station, for its lifetime.
class DriverHangs {
 public:
  DriverHangs() { driver_hangs.store(true); }
  ~DriverHangs() {
    driver_hangs.store(false);
    driver_hangs.notify_all();
  }
  DriverHangs(const DriverHangs&) = delete;
  DriverHangs& operator=(const DriverHangs&) = delete;
};

bool somebody_waits() {
  return eventually([] { return waiting_in_driver.load() > 0; });
}
// ... for that one; only this call drives its end of the connection.
bool somebody_waits(ControlStranger& newcomer) {
  return eventually([&] { return newcomer.hear() && waiting_in_driver.load() > 0; });
}

TEST_CASE_FIXTURE(GpuCouple, "an export of a GPU's memory that hangs") {
  const Memory ours = array(left, {1000});
  const Memory theirs = array(right, {1000});
  cuda.exports_hang.store(true);
  std::thread writer([&] { finish(write(*to_right, ours, theirs.remote())); });
  const bool asked = eventually([&] { return cuda.exports_hanging.load() > 0; });
  check_that_it_answers(*to_right);
  cuda.end_hang();
  writer.join();
  CHECK(asked);
  CHECK(to_right->alive());
  CHECK(eventually([&] {
    const auto again = write(*to_right, ours, theirs.remote());
    finish(again);
    return again->route().kind == "p2p";
  }));
}

TEST_CASE_FIXTURE(GpuCouple, "an Endpoint is closed though an export hangs") {
  const Memory ours = array(left, {1000});
  const Memory theirs = array(right, {1000});
  cuda.exports_hang.store(true);
  std::thread writer([&] {
    try {
      finish(write(*to_right, ours, theirs.remote()));
    } catch (const Error&) {  // its peer left
    }
  });
  CHECK(eventually([&] { return cuda.exports_hanging.load() > 0; }));
  right.close(within(0));
  CHECK(cuda.exports_hanging.load() > 0);
  cuda.end_hang();
  writer.join();
}

TEST_CASE("memory of a newcomer's queue pair takes long to register") {
  Station station;
  Endpoint here(options("here"));
  const auto peer = here.connect(station.address.to_bytes(), soon());
  ControlStranger newcomer(station.address);
  {
    const DriverHangs hang;
    newcomer.greet();
    CHECK(somebody_waits(newcomer));
    check_that_it_answers(*peer);
  }
  newcomer.await<Hello>(1);
  newcomer.say(Ready{});
  CHECK(eventually([&] { return station.control->peers().size() == 2; }));
}

TEST_CASE("a connect() that was given up while its queue pair was being made, and another one") {
  Station station;
  Endpoint there(options("there"));
  std::shared_ptr<Attempt> again;
  {
    const DriverHangs hang;
    const auto first = station.control->connect(there.address());
    CHECK(somebody_waits());
    station.control->abandon(first);
    again = station.control->connect(there.address());
  }
  REQUIRE(station.poller().wait([&] { return again->done.is(); }, soon()));
  check_that_it_answers(*there.accept(soon()));
  CHECK(again->peer->alive());
  CHECK_FALSE(there.find_accepted());
}

TEST_CASE("a newcomer hangs up while its queue pair is being made, and comes again") {
  Station station;
  {
    const DriverHangs hang;
    ControlStranger newcomer(station.address);
    newcomer.greet();
    CHECK(somebody_waits(newcomer));
  }
  ControlStranger again(station.address);
  again.enter();
  CHECK(eventually([&] { return station.control->peers().size() == 1; }));
}

TEST_CASE("a queue pair takes long to replace") {
  Station station;
  Endpoint there(options("there"));
  const auto attempt = station.control->connect(there.address());
  REQUIRE(station.poller().wait([&] { return attempt->done.is(); }, soon()));
  const auto peer = there.accept(soon());
  {
    const DriverHangs hang;
    attempt->peer->rails().path(0)->abandon("a test broke it");
    CHECK(somebody_waits());
    check_that_it_answers(*peer);
  }
  CHECK(eventually([&] { return attempt->peer->rails().reports().front().trouble.empty(); }));
  finish(peer->notify({.slot = 1, .value = 1}));
}

TEST_CASE("a queue pair for kernels takes long to make") {
  Station station;
  Endpoint here(options("here"));
  const auto peer = here.connect(station.address.to_bytes(), soon());
  ControlStranger asker(station.address);
  asker.enter();
  {
    const DriverHangs hang;
    asker.say(OpenDirect{.request = 7, .rail = 0, .queue_pair = ControlStranger::queue_pair()});
    CHECK(somebody_waits());
    check_that_it_answers(*peer);
  }
  asker.await<DirectOpened>(1);
}

TEST_CASE("two queue pairs for kernels by one number are a breach") {
  Station station;
  ControlStranger asker(station.address);
  asker.enter();
  const DriverHangs hang;
  for (int i = 0; i < 2; ++i) {
    asker.say(OpenDirect{.request = 7, .rail = 0, .queue_pair = ControlStranger::queue_pair()});
  }
  CHECK(eventually([&] { return !asker.hear(); }));
}

}  // namespace
}  // namespace zerohop::testing
