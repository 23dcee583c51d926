// Large blocks between two ranks that copy from and to each other: in slices, or written.
#include <doctest/doctest.h>

#include <algorithm>
#include <memory>
#include <utility>
#include <vector>

#include "collective_lines.hpp"
#include "engine/collective/exchange.hpp"

namespace zerohop::engine::collective {
namespace {

using testing::lines_of;
using testing::near;
using testing::soon;
using Bytes = std::vector<std::byte>;
using News = Exchange::News;

constexpr std::uint64_t kBlock = 5 * kEager + 24;
constexpr std::uint64_t kLarge = (std::uint64_t{8} << 20) + 40;  // written, if it goes both ways

Bytes counted(std::uint64_t nbytes, unsigned first) {
  Bytes made(nbytes);
  std::ranges::generate(made, [&] { return static_cast<std::byte>(first++ % 251); });
  return made;
}

// In one thread.
struct Near {
  Endpoint left{near("left")};
  Endpoint right{near("right")};
  std::shared_ptr<Peer> to_right = left.connect(right.address().to_bytes(), soon());
  std::shared_ptr<Peer> to_left = right.accept(soon());
  std::shared_ptr<Lines> lines = lines_of(left, 0, to_right);
  std::shared_ptr<Lines> others = lines_of(right, 1, to_left);

  Near() {
    lines->at(1).meet(others->at(0).inbox().remote(), false, true);
    others->at(0).meet(lines->at(1).inbox().remote(), false, true);
  }
  static Move move(Rank rank, Bytes& bytes, std::uint64_t number = 1) {
    Move made;
    made.rank = rank;
    made.bytes = bytes.data();
    made.nbytes = bytes.size();
    made.label = {.kind = Kind::send_recv, .number = number, .nbytes = bytes.size(), .dtype = {}};
    return made;
  }
  // Of an endpoint's memory. far: as if no CPU reached it.
  static Move move(Rank rank, const Memory& memory, bool far) {
    Move made;
    made.rank = rank;
    made.nbytes = memory.layout().nbytes();
    if (!far) made.bytes = bytes_of(memory);
    made.memory = std::make_shared<const Memory>(memory);
    made.label = {.kind = Kind::send_recv, .number = 1, .nbytes = made.nbytes, .dtype = {}};
    return made;
  }
  static std::byte* bytes_of(const Memory& memory) {
    return reinterpret_cast<std::byte*>(memory.layout().address);
  }
  static bool has(const Memory& memory, const Bytes& expected) {
    return std::equal(expected.begin(), expected.end(), bytes_of(memory));
  }
  static Memory filled(Endpoint& endpoint, const Bytes& content) {
    Memory made = testing::host_array(endpoint, {static_cast<std::int64_t>(content.size())});
    std::ranges::copy(content, bytes_of(made));
    return made;
  }
};

struct Begun : Exchange {
  Begun(std::shared_ptr<Lines> lines, std::vector<Move> sends, std::vector<Move> receives)
      : Exchange(std::move(lines)) {
    begin(sends, receives, false);
  }
  Outcome go_on() { return run(Deadline::Seconds{0}, soon()); }
};

// Both in turn, each as far as it gets without a wait. The first news that ends one of them.
std::pair<News, News> run(Begun& one, Begun& other) {
  std::pair<News, News> found{News::quiet, News::quiet};
  const auto goes_on = [](News news) { return news == News::quiet || news == News::full; };
  const Deadline until = soon();
  while ((goes_on(found.first) || goes_on(found.second)) && !until.passed()) {
    if (goes_on(found.first)) found.first = one.go_on().news;
    if (goes_on(found.second)) found.second = other.go_on().news;
    const auto failed = [&](News news) { return !goes_on(news) && news != News::complete; };
    if (failed(found.first) || failed(found.second)) break;
  }
  return found;
}
constexpr std::pair kBoth{News::complete, News::complete};

TEST_CASE_FIXTURE(Near, "blocks of arrays that nobody has registered go in slices, both ways") {
  for (const std::uint64_t nbytes : {std::uint64_t{kEager + 1}, 4 * kEager, kBlock}) {
    Bytes first = counted(nbytes, 1), second = counted(nbytes, 2), here(nbytes), there(nbytes);
    Begun one(lines, {move(1, first)}, {move(1, here)});
    Begun other(others, {move(0, second)}, {move(0, there)});
    REQUIRE(run(one, other) == kBoth);
    CHECK(here == second);
    CHECK(there == first);
    CHECK(lines->at(1).untaken().empty());
    CHECK(others->at(0).untaken().empty());
  }
}

TEST_CASE_FIXTURE(Near, "small blocks overtake the slices of large ones") {
  Bytes large = counted(kBlock, 1), small = counted(40, 2), here(kBlock), there(40);
  Begun one(lines, {move(1, large, 1), move(1, small, 2)}, {});
  Begun other(others, {}, {move(0, here, 1), move(0, there, 2)});
  CHECK(other.go_on().news == News::quiet);
  while (there != small) {
    (void)one.go_on();
    (void)other.go_on();
    if (there != small) REQUIRE(here != large);
  }
  REQUIRE(run(one, other) == kBoth);
  CHECK(here == large);
}

TEST_CASE_FIXTURE(Near, "a rank that gets a very large block and sends none needs no memory") {
  Bytes block = counted(kLarge, 3), target(kLarge);
  Begun one(lines, {move(1, block)}, {});
  Begun other(others, {}, {move(0, target)});
  REQUIRE(run(one, other) == kBoth);
  CHECK(target == block);
}

TEST_CASE_FIXTURE(Near, "very large blocks both ways are written, and need memory") {
  const Bytes first = counted(kLarge, 1), second = counted(kLarge, 2);
  const Memory source = filled(left, first), target = filled(left, Bytes(kLarge));
  const Memory other_source = filled(right, second), other_target = filled(right, Bytes(kLarge));
  Begun one(lines, {move(1, source, false)}, {move(1, target, false)});
  Begun other(others, {move(0, other_source, false)}, {move(0, other_target, false)});
  REQUIRE(run(one, other) == kBoth);
  CHECK(has(target, second));
  CHECK(has(other_target, first));

  Bytes unregistered(kLarge);
  Begun again(lines, {move(1, source, false)}, {move(1, unregistered)});
  CHECK(again.go_on().news == News::unregistered);
}

TEST_CASE_FIXTURE(Near, "a sender whose block no CPU reaches asks for the address") {
  const Bytes block = counted(kBlock, 5);
  const Memory source = filled(left, block), target = filled(right, Bytes(kBlock));
  Begun one(lines, {move(1, source, true)}, {});
  Begun other(others, {}, {move(0, target, false)});
  REQUIRE(run(one, other) == kBoth);
  CHECK(has(target, block));

  Bytes unregistered(kBlock);
  Begun again(lines, {move(1, source, true)}, {});
  Begun waiting(others, {}, {move(0, unregistered)});
  CHECK(run(again, waiting).second == News::unregistered);
}

TEST_CASE_FIXTURE(Near, "a receiver whose block no CPU reaches gives its address") {
  const Bytes block = counted(kBlock, 6);
  const Memory source = filled(left, block), target = filled(right, Bytes(kBlock));
  Begun one(lines, {move(1, source, false)}, {});
  Begun other(others, {}, {move(0, target, true)});
  REQUIRE(run(one, other) == kBoth);
  CHECK(has(target, block));

  Bytes unregistered = block;
  Begun again(lines, {move(1, unregistered)}, {});
  Begun waiting(others, {}, {move(0, target, true)});
  CHECK(run(again, waiting).first == News::unregistered);
}

TEST_CASE_FIXTURE(Near, "a slice of another length than expected stops the call") {
  Bytes block = counted(kEager + 100, 7), target(kEager + 200);
  Move taken = move(0, target);
  taken.label.nbytes = block.size();
  Begun one(lines, {move(1, block)}, {});
  Begun other(others, {}, {taken});
  CHECK(run(one, other).second == News::length);
}

TEST_CASE_FIXTURE(Near, "a block that goes in slices is not announced behind its end") {
  Bytes block = counted(kBlock, 8), target(kBlock);
  Begun one(lines, {move(1, block)}, {});
  Begun other(others, {}, {move(0, target)});
  for (int turn = 0; turn < 3; ++turn) {
    (void)other.go_on();
    (void)one.go_on();
  }
  REQUIRE(target[0] == block[0]);
  for (one.announce(); one.go_on().news != News::complete;) (void)other.go_on();
  while (other.go_on().news != News::complete) continue;
  CHECK(others->at(0).untaken().empty());
}

TEST_CASE_FIXTURE(Near, "a call that is given up between two slices leaves the next one alone") {
  Bytes block = counted(40 * kEager, 8), target(40 * kEager), small = counted(8, 9), there(8);
  {
    Begun other(others, {}, {move(0, target)});
    CHECK(other.go_on().news == News::quiet);
    Begun one(lines, {move(1, block)}, {});
    for (int turn = 0; turn < 3; ++turn) {
      (void)one.go_on();
      (void)other.go_on();
    }
    REQUIRE(target != block);
    REQUIRE(std::equal(block.begin(), block.begin() + kEager, target.begin()));
  }
  const Bytes before = target;
  Begun next(lines, {}, {move(1, there, 2)});
  Begun sending(others, {move(0, small, 2)}, {});
  REQUIRE(run(next, sending) == kBoth);
  CHECK(there == small);
  CHECK(target == before);
}

}  // namespace
}  // namespace zerohop::engine::collective
