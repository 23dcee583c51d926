// A list whose first few members need no allocation.
#include <doctest/doctest.h>

#include <memory>

#include "base/short_list.hpp"

namespace zerohop {
namespace {

using List = ShortList<std::shared_ptr<int>, 2>;

TEST_CASE("members lie in a row, however many, and are kept until they are cleared") {
  for (int count : {0, 1, 2, 3, 9, 40}) {
    CAPTURE(count);
    const auto shared = std::make_shared<int>(7);
    List list;
    for (int i = 0; i < count; ++i) list.push_back(i % 2 == 0 ? shared : std::make_shared<int>(i));
    REQUIRE(list.size() == static_cast<std::size_t>(count));
    CHECK(list.empty() == (count == 0));
    int at = 0;
    for (const auto& member : list.span()) {
      CHECK(*member == (at % 2 == 0 ? 7 : at));
      ++at;
    }
    CHECK(shared.use_count() == 1 + (count + 1) / 2);
    List moved(std::move(list));
    CHECK(list.empty());
    CHECK(moved.size() == static_cast<std::size_t>(count));
    CHECK(shared.use_count() == 1 + (count + 1) / 2);
    moved.clear();
    CHECK(moved.empty());
    CHECK(shared.use_count() == 1);
    moved.push_back(shared);
    CHECK(moved.back() == shared);
    moved = List();
    CHECK(shared.use_count() == 1);
  }
}

}  // namespace
}  // namespace zerohop
