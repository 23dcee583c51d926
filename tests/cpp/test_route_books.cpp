// Counters of a Peer outlive it.
#include <doctest/doctest.h>

#include <string>

#include "engine/stats/route_books.hpp"

namespace zerohop::testing {
namespace {

using engine::Operation;
using engine::RouteBook;
using engine::RouteBooks;

const RouteBook::Name kHost{"host", "soft0"};

// A Peer that wrote once, and may have left something in progress.
void session(RouteBooks& books, const std::string& name, int under_way = 0) {
  const auto book = books.open();
  books.connected(book, name);
  const auto stats = book->of(kHost.first, kHost.second);
  stats->begin(Operation::write, 10);
  stats->end(Operation::write, 1000);
  stats->under_way += under_way;
  books.ended(book, "it left");
}

std::uint64_t writes(const RouteBooks::Reading& reading) {
  const auto found = reading.sums.find(kHost);
  return found == reading.sums.end() ? 0 : found->second->operations[0].load();
}

TEST_CASE("a peer counts while it is there and when it is gone, and not twice") {
  RouteBooks books;
  const auto book = books.open();
  CHECK(books.read().connections.empty());  // not connected yet
  books.connected(book, "one");
  book->of(kHost.first, kHost.second)->begin(Operation::write, 10);
  auto reading = books.read();
  REQUIRE(reading.connections.size() == 1);
  CHECK(reading.connections[0].peer == "one");
  CHECK(!reading.connections[0].ended);
  CHECK(writes(reading) == 1);

  books.ended(book, "its network was cut");
  books.ended(book, "it was closed");  // the second caller changes nothing
  reading = books.read();
  REQUIRE(reading.connections.size() == 1);
  CHECK(reading.connections[0].ended == "its network was cut");
  CHECK(writes(reading) == 1);
}

TEST_CASE("of a peer that was never connected nothing stays") {
  RouteBooks books;
  books.ended(books.open(), "it did not answer");
  books.open();  // and this one is gone at once
  CHECK(books.read().connections.empty());
  CHECK(books.read().sums.empty());
}

TEST_CASE("of many that are gone the last are listed, and all are counted") {
  constexpr std::size_t kVisits = RouteBooks::kEndedKept + 100;
  RouteBooks books;
  for (std::size_t i = 0; i < kVisits; ++i) session(books, "client " + std::to_string(i));
  const auto reading = books.read();
  CHECK(reading.connections.size() == RouteBooks::kEndedKept);
  CHECK(reading.connections.front().peer == "client 100");
  CHECK(reading.connections.back().peer == "client " + std::to_string(kVisits - 1));
  CHECK(writes(reading) == kVisits);
  CHECK(reading.sums.at(kHost)->bytes_out == 10 * kVisits);
  CHECK(reading.sums.at(kHost)->latencies[0].read().count == kVisits);
}

TEST_CASE("what is counted by a name does not fall when that peer comes and goes") {
  RouteBooks books;
  for (std::size_t i = 1; i <= 2 * RouteBooks::kEndedKept; ++i) {
    session(books, "client");
    const auto reading = books.read();
    REQUIRE(reading.connections.size() == 1);
    CHECK(reading.connections[0].sums.at(kHost)->bytes_out == 10 * i);
    CHECK(writes(reading) == i);
  }
}

TEST_CASE("what would end unseen is no longer in progress") {
  RouteBooks books;
  for (std::size_t i = 0; i <= RouteBooks::kEndedKept; ++i) {
    session(books, "client " + std::to_string(i), 1);
  }
  CHECK(books.read().sums.at(kHost)->under_way == RouteBooks::kEndedKept);
  session(books, "client 5", 1);  // again: the one before can no longer end
  CHECK(books.read().sums.at(kHost)->under_way == RouteBooks::kEndedKept);
}

}  // namespace
}  // namespace zerohop::testing
