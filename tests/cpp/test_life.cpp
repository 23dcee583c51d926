// An object releases what it holds once, when no thread is inside any more.
#include <doctest/doctest.h>

#include <atomic>
#include <chrono>
#include <optional>

#include "engine/core/life.hpp"

namespace {

using std::chrono::milliseconds;
using zerohop::engine::Life;

TEST_CASE("with nobody inside the end releases") {
  int released = 0;
  Life life([&] { ++released; });
  {
    const Life::Inside inside(life);
  }
  CHECK(released == 0);
  life.end(milliseconds(0));
  CHECK(released == 1);
  {
    const Life::Inside inside(life);
  }
  life.end(milliseconds(0));
  CHECK(released == 1);
}

TEST_CASE("the last to leave releases what the end did not wait for") {
  int released = 0;
  Life life([&] { ++released; });
  std::optional<Life::Inside> first(std::in_place, life);
  std::optional<Life::Inside> second(std::in_place, life);
  life.end(milliseconds(1));
  CHECK(released == 0);
  first.reset();
  CHECK(released == 0);
  second.reset();
  CHECK(released == 1);
}

}  // namespace
