#include <doctest/doctest.h>

#include <cstring>
#include <numeric>
#include <vector>

#include "engine/notify/board.hpp"
#include "engine/path/verbs/matcher.hpp"
#include "engine/path/verbs/send_queue.hpp"

using namespace zerohop;
using namespace zerohop::engine;

namespace {

Arrived eager(std::uint32_t tag, std::size_t nbytes, std::uint32_t id = 0) {
  return {.message = {.kind = MessageKind::eager, .tag = tag, .id = id, .nbytes = nbytes},
          .payload = std::vector<std::byte>(nbytes)};
}

}  // namespace

TEST_CASE("messages are found by tag, oldest first") {
  Matcher matcher;
  matcher.add(eager(1, 8, 10));
  matcher.add(eager(2, 8, 20));
  matcher.add(eager(1, 8, 11));
  CHECK(matcher.find_arrived(2)->message.id == 20);
  auto first = matcher.find_arrived(1);
  CHECK(first->message.id == 10);
  matcher.put_back(std::move(*first));
  CHECK(matcher.find_arrived(1)->message.id == 10);
  CHECK(matcher.find_arrived(1)->message.id == 11);
  CHECK_FALSE(matcher.find_arrived(1).has_value());
  CHECK(matcher.waiting_nbytes() == 0);
}

TEST_CASE("offers die with their queue pair, eager messages stay") {
  Matcher matcher;
  matcher.add(eager(1, 100));
  matcher.add(Arrived{.message = {.kind = MessageKind::offer, .tag = 1, .nbytes = 1u << 20},
                      .payload = {}});
  matcher.add(Arrived{.message = {.kind = MessageKind::offer, .tag = 2, .nbytes = 1u << 20},
                      .payload = {}});
  CHECK(matcher.waiting_nbytes() == 100 + 3 * sizeof(Arrived));
  matcher.drop_offers(/*rail=*/0);
  CHECK(matcher.waiting_nbytes() == 100 + sizeof(Arrived));
  CHECK(matcher.find_arrived(1).has_value());
  CHECK_FALSE(matcher.find_arrived(1).has_value());
  CHECK_FALSE(matcher.find_arrived(2).has_value());
}

TEST_CASE("a receive takes what fits") {
  const Layout dense =
      Layout::contiguous(4096, DType::parse("int32"), std::vector<std::int64_t>{4});
  const Layout gaps{4096, DType::parse("int32"), {4}, {8}};
  CHECK_FALSE(refuse_receive(dense, 16).has_value());
  CHECK_FALSE(refuse_receive(dense, 3).has_value());
  CHECK(refuse_receive(dense, 17).has_value());
  CHECK_FALSE(refuse_receive(gaps, 16).has_value());
  CHECK(refuse_receive(gaps, 8).has_value());
  CHECK(receive_part(dense, 3).nbytes() == 3);
  CHECK(receive_part(gaps, 16) == gaps);
}

TEST_CASE("pack and unpack follow the strides") {
  std::vector<std::int32_t> array(24);
  std::iota(array.begin(), array.end(), 0);
  const auto address = reinterpret_cast<std::uint64_t>(array.data());
  const Layout column{address + 4, DType::parse("int32"), {4}, {24}};  // of a 4 x 6 array
  std::vector<std::byte> packed(16);
  pack(column, packed);
  std::vector<std::int32_t> values(4);
  std::memcpy(values.data(), packed.data(), 16);
  CHECK(values == std::vector<std::int32_t>{1, 7, 13, 19});
  values = {-1, -2, -3, -4};
  unpack(std::as_bytes(std::span(values)), column);
  CHECK(array[1] == -1);
  CHECK(array[7] == -2);
  CHECK(array[19] == -4);
  CHECK(array[2] == 2);
}

TEST_CASE("a board slot is taken once") {
  Board board;
  CHECK_FALSE(board.find(0, Board::kSlots, true).has_value());
  board.put(9, 5);
  board.put(7, 4);
  CHECK(board.puts() == 2);
  CHECK(board.peek(9) == 5);
  CHECK(board.find(0, 10, false) == std::pair<std::uint32_t, std::uint32_t>{7, 4});
  CHECK(board.find(0, 10, true) == std::pair<std::uint32_t, std::uint32_t>{7, 4});
  CHECK(board.find(0, 10, true) == std::pair<std::uint32_t, std::uint32_t>{9, 5});
  CHECK(board.reset(9) == 0);
}

TEST_CASE("one completion retires all chains before it") {
  SendQueue queue(8);
  for (int i = 0; i < 3; ++i) queue.push({.transfer = nullptr, .requests = 2});
  CHECK(queue.room() == 2);
  PostedChain chain;
  std::uint64_t ticket = 0;
  int popped = 0;
  while (queue.pop_until(1, chain, ticket)) ++popped;
  CHECK(popped == 2);
  CHECK(ticket == 1);
  CHECK(queue.room() == 6);
  CHECK_FALSE(queue.empty());
}
