// WantedNames: look-ups that wait for a name to be shared.
#include <doctest/doctest.h>

#include <cstdint>
#include <string>

#include "engine/control/link.hpp"
#include "engine/control/wanted_names.hpp"

namespace zerohop::testing {
namespace {

using namespace zerohop::engine;

TEST_CASE("a peer that asked for a name is found by it, once") {
  WantedNames names;
  Link one, other;
  names.add(one, 1, "a");
  names.add(one, 2, "b");
  names.add(other, 1, "a");
  CHECK(names.take("a").size() == 2);
  CHECK(names.take("a").empty());
  const auto left = names.take("b");
  REQUIRE(left.size() == 1);
  CHECK(left.front().link == &one);
  CHECK(left.front().request == 2);
  CHECK(names.size() == 0);
}

TEST_CASE("the oldest look-up of a link makes room for the newest, and not another link's") {
  WantedNames names;
  Link one, other;
  names.add(other, 1, "other");
  names.add(one, 1, "first");
  for (std::uint64_t request = 2; request < 2 + WantedNames::kMost; ++request) {
    names.add(one, request, "many");
  }
  CHECK(names.size() == 1 + WantedNames::kMost);
  CHECK(names.take("first").empty());
  CHECK(names.take("other").size() == 1);
  CHECK(names.take("many").size() == WantedNames::kMost);
}

TEST_CASE("a link that goes wants nothing more") {
  WantedNames names;
  Link one, other;
  names.add(one, 1, "a");
  names.add(other, 2, "a");
  names.forget(one);
  CHECK(names.take("a").size() == 1);
  CHECK(names.size() == 0);
}

}  // namespace
}  // namespace zerohop::testing
