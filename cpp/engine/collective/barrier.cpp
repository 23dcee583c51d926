#include "engine/collective/barrier.hpp"

#include <algorithm>
#include <bit>
#include <stdexcept>

#include "base/error.hpp"

namespace zerohop::engine::collective {

Barrier::Barrier(std::shared_ptr<Endpoint> endpoint, std::shared_ptr<CallLog> log,
                 const Place& place)
    : endpoint_(std::move(endpoint)), log_(std::move(log)), place_(place), peers_(place.size) {
  static_assert(kTree < kSteps, "each rank of the tree has a slot in a row");
  if (place.rank >= place.size) throw std::invalid_argument("ranks go from 0 to size - 1");
}

std::uint32_t Barrier::steps() const noexcept {
  return is_tree() ? 2 : static_cast<std::uint32_t>(std::bit_width(place_.size - 1));
}

std::uint32_t Barrier::tells(std::uint32_t step) const noexcept {
  if (!is_tree()) return 1;
  if (place_.rank == 0) return step == 0 ? 0 : place_.size - 1;
  return step == 0 ? 1 : 0;
}

std::uint32_t Barrier::hears(std::uint32_t step) const noexcept {
  return is_tree() ? tells(1 - step) : 1;
}

std::uint32_t Barrier::slot(std::uint32_t step, Rank teller) const noexcept {
  return place_.first_slot + row_ * kSteps + (is_tree() ? teller : step);
}

Barrier::Rank Barrier::target(std::uint32_t step, std::uint32_t partner) const noexcept {
  if (is_tree()) return place_.rank == 0 ? partner + 1 : 0;
  return static_cast<Rank>((place_.rank + distance(step)) % place_.size);
}

Barrier::Rank Barrier::source(std::uint32_t step, std::uint32_t partner) const noexcept {
  if (is_tree()) return place_.rank == 0 ? partner + 1 : 0;
  return static_cast<Rank>((place_.rank + place_.size - distance(step)) % place_.size);
}

void Barrier::begin() {
  if (!call_) call_ = log_->add({.kind = Kind::barrier});
}

Barrier::Outcome Barrier::run(bool with_digest, const Deadline& deadline) {
  const std::uint32_t digest = call_ ? call_->digest & (kArrived - 1) : 0;
  const std::uint32_t value = kArrived | (with_digest ? std::max(digest, std::uint32_t{1}) : 0);
  while (step_ < steps()) {
    if (const Outcome told = tell(value); told.news != News::through) return told;
    if (const Outcome heard = hear(value, deadline); heard.news != News::through) return heard;
    ++step_;
    told_ = heard_ = 0;
  }
  row_ = 1 - row_;
  step_ = 0;
  call_.reset();
  return {};
}

Barrier::Outcome Barrier::tell(std::uint32_t value) {
  for (; told_ < tells(step_); ++told_) {
    const Rank to = target(step_, told_);
    if (!peers_[to]) return {News::unknown, to};
    try {
      peers_[to]->put(Notification{slot(step_, place_.rank), value});
    } catch (const PeerLost&) {
      return {News::lost, to};
    }
  }
  return {};
}

Barrier::Outcome Barrier::hear(std::uint32_t own, const Deadline& deadline) {
  const std::uint32_t all = (std::uint32_t{1} << hears(step_)) - 1;
  const std::uint32_t first = slot(step_, source(step_, 0));
  Outcome outcome;
  while (heard_ != all && outcome.news == News::through) {
    try {
      endpoint_->wait_notifies(first, hears(step_), taken_, deadline);
    } catch (const TransferTimeout&) {
      return {News::quiet};
    } catch (const PeerLost&) {  // the last one that could tell anything
      return {News::quiet};
    }
    for (const auto& [at, value] : taken_) {
      const Outcome judged = judge(at - first, value, own);
      if (outcome.news == News::through) outcome = judged;
    }
  }
  return outcome;
}

// What a partner has told.
Barrier::Outcome Barrier::judge(std::uint32_t partner, std::uint32_t value, std::uint32_t own) {
  if (value < kArrived) return {News::told, std::int64_t{value} - kLost};
  heard_ |= std::uint32_t{1} << partner;
  if (value == kArrived || own == kArrived || value == own) return {};
  return {News::different, source(step_, partner)};
}

std::vector<Barrier::Rank> Barrier::missing() const {
  std::vector<Rank> found;
  for (std::uint32_t partner = 0; partner < hears(step_); ++partner) {
    if ((heard_ >> partner & 1) == 0) found.push_back(source(step_, partner));
  }
  return found;
}

std::vector<std::pair<Barrier::Rank, std::uint32_t>> Barrier::untold() const {
  std::vector<std::pair<Rank, std::uint32_t>> found;
  for (std::uint32_t step = step_; step < steps(); ++step) {
    for (std::uint32_t partner = step == step_ ? told_ : 0; partner < tells(step); ++partner) {
      found.emplace_back(target(step, partner), slot(step, place_.rank));
    }
  }
  return found;
}

}  // namespace zerohop::engine::collective
