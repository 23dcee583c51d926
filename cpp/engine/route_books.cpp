#include "engine/route_books.hpp"

#include <algorithm>
#include <utility>

namespace zerohop::engine {

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
  ended_.push_back({.peer = *peer, .book = book, .ended = std::move(why)});
  if (ended_.size() <= kEndedKept) return;
  for (const auto& [name, stats] : ended_.front().book->rows()) {
    const auto sum = earlier_.of(name.first, name.second);
    sum->add(*stats);
    sum->under_way = 0;  // whose ends would not be seen any more
  }
  ended_.pop_front();
}

RouteBooks::Reading RouteBooks::read() const {
  Reading reading;
  const std::lock_guard lock(mutex_);
  reading.connections.assign(ended_.begin(), ended_.end());
  for (const Open& open : open_) {
    if (!open.peer) continue;
    if (auto book = open.book.lock()) {
      reading.connections.push_back(
          {.peer = *open.peer, .book = std::move(book), .ended = std::nullopt});
    }
  }
  const auto add = [&](const RouteBook& book) {
    for (const auto& [name, stats] : book.rows()) {
      auto& sum = reading.sums[name];
      if (!sum) sum = std::make_shared<RouteStats>();
      sum->add(*stats);
    }
  };
  add(earlier_);
  for (const Connection& connection : reading.connections) add(*connection.book);
  return reading;
}

}  // namespace zerohop::engine
