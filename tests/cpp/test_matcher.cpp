#include <doctest/doctest.h>

#include <vector>

#include "engine/notify/board.hpp"
#include "engine/path/verbs/matcher.hpp"
#include "engine/path/verbs/send_queue.hpp"

using namespace zerohop;
using namespace zerohop::engine;

namespace {

Arrived eager(std::uint32_t tag, std::size_t nbytes) {
  return {.message = {.kind = MessageKind::eager, .tag = tag, .nbytes = nbytes},
          .payload = std::vector<std::byte>(nbytes)};
}

}  // namespace

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
