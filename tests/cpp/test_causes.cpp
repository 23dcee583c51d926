#include <doctest/doctest.h>

#include <string>

#include "base/causes.hpp"

TEST_CASE("causes are told once each, and not without end") {
  zerohop::Causes causes;
  CHECK(causes.add("one"));
  CHECK(causes.add("two"));
  CHECK(!causes.add("one"));
  std::size_t told = 2;
  for (int i = 0; i < 100; ++i) told += causes.add(std::to_string(i)) ? 1 : 0;
  CHECK(told == zerohop::Causes::kMost);
}
