#include "engine/stats/route_books.hpp"

#include <algorithm>
#include <utility>

namespace zerohop::engine {
namespace {

void add(RouteBooks::Sums& sums, const RouteBook::Name& name, const RouteStats& stats) {
  auto& sum = sums[name];
  if (!sum) sum = std::make_shared<RouteStats>();
  sum->add(stats);
}

void add(RouteBooks::Sums& sums, const RouteBook& book) {
  for (const auto& [name, stats] : book.rows()) add(sums, name, *stats);
}

// For a connection that has ended; transfers still in progress end unseen.
void fold(RouteBook& into, const RouteBook& book) {
  for (const auto& [name, stats] : book.rows()) {
    const auto sum = into.of(name.first, name.second);
    sum->add(*stats);
    sum->under_way = 0;
  }
}

}  // namespace

std::shared_ptr<RouteBook> RouteBooks::open() {
  const std::lock_guard lock(mutex_);
  std::erase_if(open_, [](const Open& open) { return open.book.expired(); });
  auto book = std::make_shared<RouteBook>();
  open_.push_back({.book = book});
  return book;
}

RouteBooks::Open* RouteBooks::find(const std::shared_ptr<RouteBook>& book) {
  const auto found =
      std::ranges::find_if(open_, [&](const Open& open) { return open.book.lock() == book; });
  return found == open_.end() ? nullptr : &*found;
}

void RouteBooks::connected(const std::shared_ptr<RouteBook>& book, std::string peer) {
  book->set_peer(peer);
  const std::lock_guard lock(mutex_);
  if (Open* const open = find(book)) open->peer = std::move(peer);
}

void RouteBooks::ended(const std::shared_ptr<RouteBook>& book, std::string why) {
  const std::lock_guard lock(mutex_);
  Open* const open = find(book);
  if (open == nullptr) return;
  const std::optional<std::string> peer = std::move(open->peer);
  open_.erase(open_.begin() + (open - open_.data()));
  if (!peer) return;  // it was never connected
  auto before = std::make_shared<RouteBook>();
  const auto same = std::ranges::find(ended_, *peer, &Ended::peer);
  if (same != ended_.end()) {
    before = std::move(same->before);
    fold(*before, *same->book);
    ended_.erase(same);
  }
  ended_.push_back({*peer, std::move(why), book, std::move(before)});
  if (ended_.size() <= kEndedKept) return;
  fold(earlier_, *ended_.front().before);
  fold(earlier_, *ended_.front().book);
  ended_.pop_front();
}

RouteBooks::Reading RouteBooks::read() const {
  Reading reading;
  const std::lock_guard lock(mutex_);
  for (const Ended& ended : ended_) {
    Connection connection{.peer = ended.peer, .ended = ended.why};
    add(connection.sums, *ended.before);
    add(connection.sums, *ended.book);
    reading.connections.push_back(std::move(connection));
  }
  for (const Open& open : open_) {
    const auto book = open.book.lock();
    if (!open.peer || !book) continue;
    Connection connection{.peer = *open.peer, .ended = std::nullopt};
    add(connection.sums, *book);
    reading.connections.push_back(std::move(connection));
  }
  add(reading.sums, earlier_);
  for (const Connection& connection : reading.connections) {
    for (const auto& [name, stats] : connection.sums) add(reading.sums, name, *stats);
  }
  return reading;
}

}  // namespace zerohop::engine
