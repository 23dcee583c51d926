// What an Exchange consists of, each part by itself.
#include <doctest/doctest.h>

#include <algorithm>
#include <array>
#include <memory>
#include <span>
#include <utility>
#include <vector>

#include "collective_lines.hpp"
#include "engine/collective/block_writes.hpp"
#include "engine/collective/own_copies.hpp"
#include "engine/collective/partners.hpp"
#include "engine/collective/run_limits.hpp"
#include "engine/collective/sender.hpp"
#include "engine/collective/sliced_sends.hpp"
#include "engine/collective/staying_blocks.hpp"
#include "engine/collective/steps.hpp"

namespace zerohop::engine::collective {
namespace {

using testing::lines_of;
using testing::near;
using testing::soon;
using Bytes = std::vector<std::byte>;

Bytes counted(std::uint64_t nbytes) {
  Bytes made(nbytes);
  std::ranges::generate(made, [next = 0U]() mutable { return static_cast<std::byte>(++next); });
  return made;
}

// Two arrays, and the given steps.
struct Given : Schedule {
  std::vector<Step> steps;

  Given(Bytes& target, Bytes& source) {
    arrays_.push_back({.bytes = target.data()});
    arrays_.push_back({.bytes = source.data()});
  }
  std::uint64_t room() const override { return 0; }
  bool next(Step& step, std::span<const Move>) override {
    if (steps.empty()) return false;
    step = steps.front();
    steps.erase(steps.begin());
    return true;
  }
};

Copy copy_of(std::uint64_t begin, std::uint64_t nbytes) {
  return {{0, begin, nbytes}, {1, begin, nbytes}};
}

TEST_CASE("own copies are made part by part, one after the other") {
  for (const bool past : {false, true}) {
    const Bytes expected = counted(130);
    Bytes target(130), source = expected;
    const Given schedule(target, source);
    const std::vector<Copy> copies{
        copy_of(0, 100), copy_of(100, 0), {{1, 0, 50}, {1, 0, 50}}, copy_of(100, 30)};
    OwnCopies own;
    CHECK(own.done());
    own.copy_part(10, past);
    own.begin(&schedule, copies);
    CHECK(own.nbytes() == 180);
    own.copy_part(64, past);
    CHECK(own.nbytes() == 116);
    CHECK(std::equal(target.begin(), target.begin() + 64, expected.begin()));
    CHECK(std::count(target.begin(), target.end(), std::byte{0}) == 66);
    own.copy_part(64, past);
    own.copy_part(64, past);  // nothing to copy
    own.copy_part(10, past);  // the same memory: at once
    CHECK(own.nbytes() == 30);
    CHECK_FALSE(own.done());
    own.copy_part(64, past);
    CHECK(own.done());
    CHECK(target == expected);
  }
}

TEST_CASE("a step's copies stop at those that no CPU makes, and its moves have the labels") {
  Bytes target(24), source = counted(24);
  auto schedule = std::make_shared<Given>(target, source);
  schedule->set_room({.bytes = nullptr, .on_host = false});
  Step first, second;
  first.copies = {copy_of(0, 8), {{2, 0, 8}, {1, 0, 8}}, copy_of(16, 8)};
  second.copies = {copy_of(8, 8)};
  second.sends.resize(1);
  second.sends[0].label.part = 5;
  second.sends[0].label.nbytes = 24;
  schedule->steps = {first, second};
  Steps steps;
  CHECK(steps.ended());
  steps.begin(schedule, {.send = {.number = 3, .dtype = {}}, .receive = {.dtype = {}}});
  CHECK(steps.copy()->target.array == 2);
  CHECK(std::equal(target.begin(), target.begin() + 8, source.begin()));
  CHECK(target[16] != source[16]);
  CHECK_FALSE(steps.copy());
  CHECK(target[16] == source[16]);
  REQUIRE(steps.next({}));
  CHECK_FALSE(steps.copy());
  CHECK(target == source);
  Move& move = steps.current().sends.at(0);
  CHECK(move.label == Label{.number = 3, .nbytes = 24, .part = 5, .dtype = {}});
  CHECK_FALSE(steps.provide(move));  // nobody has registered the array
  CHECK_FALSE(steps.next({}));
  steps.end();
  CHECK(steps.ended());
}

TEST_CASE("the limits of a run: a wait ends at the earlier one, and work is interrupted for it") {
  RunLimits limits;
  const Deadline last = Deadline::after(Deadline::Seconds{1});
  limits.begin(Deadline::Seconds{100}, last);
  CHECK(limits.until().at() == last.at());
  CHECK_FALSE(limits.asks_for_pause());
  limits.begin(Deadline::Seconds{0}, last);
  CHECK(limits.until().at() < last.at());
  CHECK(limits.asks_for_pause());
  limits.begin(Deadline::Seconds{100}, soon());
  CHECK_FALSE(limits.asks_for_pause());
  // Counted from the first question, not from each.
  limits.begin(Deadline::Seconds{1e-3}, Deadline::after(Deadline::Seconds{100}));
  const Deadline late = Deadline::after(Deadline::Seconds{10});
  bool asks = false;
  while (!asks && !late.passed()) asks = limits.asks_for_pause();
  CHECK(asks);
}

// Rank 0 with lines to 1 and 2, which are the same endpoint.
struct Ranks {
  Endpoint left{near("left")};
  Endpoint right{near("right")};
  std::shared_ptr<Peer> to_right = left.connect(right.address().to_bytes(), soon());
  std::shared_ptr<Peer> to_left = right.accept(soon());
  std::shared_ptr<Lines> lines = lines_of(left, 0, to_right);
  std::shared_ptr<Lines> others = lines_of(right, 1, to_left);
  Sender sender{lines};
  Line& line = lines->at(1);
  Line& there = others->at(0);
  Line& third =
      lines->add(2, to_right, testing::host_array(left, {kInbox}), testing::kMessages + 8);

  Ranks() {
    line.meet(there.inbox().remote(), false, true);
    there.meet(line.inbox().remote(), false, true);
  }
  static Move move(Rank rank, Bytes& bytes) {
    Move made;
    made.rank = rank;
    made.bytes = bytes.data();
    made.nbytes = bytes.size();
    return made;
  }
  // Over rank 0's line to rank 1.
  void send(std::span<const std::byte> payload) {
    const Header header{.label = {.dtype = {}},
                        .length = static_cast<std::uint32_t>(payload.size())};
    if (!sender.put(line, header, payload)) {
      RunLimits limits;
      limits.begin(Deadline::Seconds{testing::kTimeout}, soon());
      REQUIRE_FALSE(sender.send(line, header, payload, limits));
    }
    CHECK_FALSE(sender.culprit());
  }
  static bool holds(const Memory& memory, const Bytes& expected) {
    return std::ranges::equal(
        std::span(reinterpret_cast<const std::byte*>(memory.layout().address), expected.size()),
        expected);
  }
};

TEST_CASE_FIXTURE(Ranks, "each line gets one slice at a time, if there is room for it") {
  Bytes bytes = counted(2 * kEager + 8);
  Move first = move(1, bytes), second = move(1, bytes), other = move(2, bytes);
  SlicedSends slices;
  CHECK_FALSE(slices.any_fits());
  slices.add(line, first);
  slices.add(line, second);
  slices.add(third, other);
  const auto queued = [&] {
    MessageQueue queue;
    slices.queue_into(queue);
    std::vector<std::pair<const Move*, std::size_t>> found;
    for (; !queue.empty(); queue.pop()) {
      CHECK(queue.next().data().data() == bytes.data() + queue.next().move->moved);
      found.emplace_back(queue.next().move, queue.next().data().size());
    }
    return found;
  };
  using Found = std::vector<std::pair<const Move*, std::size_t>>;
  CHECK(queued() == Found{{&first, kEager}, {&other, kEager}});
  CHECK_FALSE(slices.sent(first));
  CHECK_FALSE(slices.sent(first));
  CHECK(queued() == Found{{&first, 8}, {&other, kEager}});
  CHECK(slices.has(first));
  CHECK(slices.sent(first));
  CHECK_FALSE(slices.has(first));
  CHECK(queued() == Found{{&second, kEager}, {&other, kEager}});

  while (line.fits(kEager)) send(std::span(bytes).first(kEager));
  CHECK(queued() == Found{{&other, kEager}});
  CHECK(slices.any_fits());
  while (!slices.sent(other)) continue;
  CHECK_FALSE(slices.any_fits());
}

TEST_CASE_FIXTURE(Ranks,
                  "blocks are written in turn, a part each; what no CPU writes, as a whole") {
  const Bytes content = counted(BlockWrites::kPart + 8);
  const auto nbytes = static_cast<std::int64_t>(content.size());
  const Memory source = testing::host_array(left, {nbytes});
  std::array targets{testing::host_array(right, {nbytes}), testing::host_array(right, {nbytes})};
  auto* const bytes = reinterpret_cast<std::byte*>(source.layout().address);
  std::ranges::copy(content, bytes);
  Move near_one, far_one;
  for (Move* made : {&near_one, &far_one}) {
    made->nbytes = content.size();
    made->memory = std::make_shared<const Memory>(source);
  }
  near_one.bytes = bytes;
  BlockWrites writes;
  writes.add({&line, &near_one, targets[0].remote()});
  writes.add({&line, &far_one, targets[1].remote()});
  CHECK(writes.next().move == &near_one);
  CHECK_FALSE(writes.post_part(soon()));
  CHECK(writes.next().move == &far_one);
  CHECK(writes.post_part(soon()));
  writes.done();
  CHECK(writes.next().move == &near_one);
  CHECK(writes.post_part(soon()));
  writes.done();
  CHECK(writes.empty());
  RunLimits limits;
  limits.begin(Deadline::Seconds{testing::kTimeout}, soon());
  REQUIRE_FALSE(sender.settle(line, limits));
  for (const Memory& target : targets) CHECK(holds(target, content));
}

TEST_CASE_FIXTURE(Ranks, "a block stays in the inbox until it is released or copied out") {
  Bytes content = counted(40), target(40);
  Move taken = move(0, target);
  const auto arrive = [&] {
    send(content);
    std::vector<Line*> found;
    while (found.empty()) REQUIRE(others->listen(soon(), found));
    return there.take(1U << static_cast<unsigned>(What::data), true).value();
  };
  StayingBlocks staying;
  staying.keep(there, taken, arrive());
  CHECK(staying.latest_is_of(there));
  CHECK_FALSE(staying.latest_is_of(line));
  CHECK(std::equal(content.begin(), content.end(), taken.arrived));
  CHECK(target != content);
  CHECK(there.untaken().size() == 1);
  staying.copy_out();
  CHECK(taken.arrived == target.data());
  CHECK(target == content);
  CHECK(there.untaken().empty());

  staying.keep(there, taken, arrive());
  staying.release();
  CHECK(staying.empty());
  CHECK(there.untaken().empty());
}

TEST_CASE_FIXTURE(Ranks, "partners know from whom something is missing") {
  Bytes bytes(8);
  Move in = move(1, bytes), out = move(2, bytes);
  line.incoming.add(&in);  // of an earlier call
  line.proposes = true;
  Partners partners;
  for (Line* each : {&line, &third, &line}) partners.add(*each);
  CHECK(partners.lines() == std::vector<Line*>{&line, &third});
  CHECK(partners.all_arrived());
  CHECK_FALSE(line.expects());
  CHECK_FALSE(line.proposes);
  partners.expect(line.incoming, in);
  partners.expect(third.outgoing, out);
  CHECK(partners.missing() == std::vector<Rank>{1, 2});
  partners.arrived(line.incoming);
  CHECK(partners.missing() == std::vector<Rank>{2});
  CHECK_FALSE(partners.all_arrived());
  partners.arrived(third.outgoing);
  CHECK(partners.all_arrived());
  partners.expect(line.incoming, in);
  partners.clear();
  CHECK(partners.lines().empty());
  CHECK(partners.all_arrived());
  CHECK_FALSE(line.expects());
}

}  // namespace
}  // namespace zerohop::engine::collective
