// Process exit with open Endpoints: their threads run to the very end, beyond the destructors of
// static objects.
#include <doctest/doctest.h>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <cstring>

#include "couple.hpp"

namespace {

using namespace zerohop;
using namespace zerohop::engine;
using testing::soon;

constexpr DType kBytes{.code = kDTypeUInt, .bits = 8, .lanes = 1};
constexpr std::int64_t kNbytes = 100'000;

struct Open : testing::Couple {
  Memory ours = left.empty(std::span(&kNbytes, 1), kBytes);
  Memory theirs = right.empty(std::span(&kNbytes, 1), kBytes);

  bool exchange(int value) {
    std::memset(reinterpret_cast<void*>(ours.layout().address), value, kNbytes);
    const RemoteMemory there = theirs.remote();
    const Peer::Pair pair{&ours, &there};
    if (!to_right->write(std::span(&pair, 1), {})->wait(soon())) return false;
    return std::memcmp(reinterpret_cast<void*>(ours.layout().address),
                       reinterpret_cast<void*>(theirs.layout().address), kNbytes) == 0;
  }
};

Open* open = nullptr;

// Runs last: everything constructed after its registration has been destroyed.
void exchange_at_the_end() {
  Endpoint late(testing::options("late"));
  if (late.connect(open->left.address().to_bytes(), soon()) && open->exchange(2)) return;
  std::puts("what was static is gone, and with it what open Endpoints use");
  std::fflush(stdout);
  ::_exit(1);
}

TEST_CASE("open Endpoints outlive what is static") {
  REQUIRE(std::atexit(exchange_at_the_end) == 0);
  open = new Open;
  CHECK(open->exchange(1));
}

}  // namespace
