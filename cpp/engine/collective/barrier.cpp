#include "engine/collective/barrier.hpp"

#include <algorithm>
#include <stdexcept>

#include "base/error.hpp"

namespace zerohop::engine::collective {

Barrier::Barrier(std::shared_ptr<Endpoint> endpoint, std::shared_ptr<CallLog> log,
                 const Place& place)
    : endpoint_(std::move(endpoint)),
      log_(std::move(log)),
      place_(place),
      radix_(place.size > 2 && place.size <= kAtOnce ? place.size : 2),
      others_(place.size) {
  static_assert(kAtOnce - 1 < kSteps, "the partners of one step have a slot each in a row");
  if (place.rank >= place.size) throw std::invalid_argument("ranks go from 0 to size - 1");
}

// How far the partner is ahead, from 0 on; the rank to hear from is as far behind.
std::uint64_t Barrier::distance(std::uint32_t step, std::uint32_t partner) const noexcept {
  return std::uint64_t{partner + 1} << step;
}

std::uint32_t Barrier::partners(std::uint32_t step) const noexcept {
  if (radix_ > 2) return step == 0 ? radix_ - 1 : 0;
  return distance(step, 0) < place_.size ? 1 : 0;
}

std::uint32_t Barrier::slot(std::uint32_t step, std::uint32_t partner) const noexcept {
  return row_ * kSteps + step + partner;
}

Barrier::Rank Barrier::target(std::uint32_t step, std::uint32_t partner) const noexcept {
  return static_cast<Rank>((place_.rank + distance(step, partner)) % place_.size);
}

Barrier::Rank Barrier::source(std::uint32_t step, std::uint32_t partner) const noexcept {
  return static_cast<Rank>((place_.rank + place_.size - distance(step, partner)) % place_.size);
}

void Barrier::begin() {
  if (!call_) call_ = log_->add({.kind = Kind::barrier});
}

Barrier::Outcome Barrier::run(bool with_digest, const Deadline& deadline) {
  const std::uint32_t digest = call_ ? call_->digest & (kArrived - 1) : 0;
  const std::uint32_t value = kArrived | (with_digest ? std::max(digest, std::uint32_t{1}) : 0);
  while (partners(step_) > 0) {
    if (const Outcome reported = tell(value); reported.news != News::through) return reported;
    if (const Outcome heard = hear(value, deadline); heard.news != News::through) return heard;
    ++step_;
    reported_ = heard_ = 0;
  }
  row_ = 1 - row_;
  step_ = 0;
  call_.reset();
  return {};
}

Barrier::Outcome Barrier::tell(std::uint32_t value) {
  for (; reported_ < partners(step_); ++reported_) {
    const Rank to = target(step_, reported_);
    if (!others_[to].peer) return {News::unknown, to};
    try {
      others_[to].peer->put(Notification{others_[to].first_slot + slot(step_, reported_), value});
    } catch (const PeerLost&) {
      return {News::lost, to};
    }
  }
  return {};
}

Barrier::Outcome Barrier::hear(std::uint32_t own, const Deadline& deadline) {
  const std::uint32_t all = (std::uint32_t{1} << partners(step_)) - 1;
  const std::uint32_t first = place_.first_slot + slot(step_, 0);
  Outcome outcome;
  while (heard_ != all && outcome.news == News::through) {
    try {
      endpoint_->wait_notifies(first, partners(step_), taken_, deadline);
    } catch (const TransferTimeout&) {
      return {News::quiet};
    } catch (const PeerLost&) {  // the last peer that could notify anything
      return {News::quiet};
    }
    for (const auto& [at, value] : taken_) {
      const Outcome judged = judge(at - first, value, own);
      if (outcome.news == News::through) outcome = judged;
    }
  }
  return outcome;
}

// Interprets the value that a partner sent.
Barrier::Outcome Barrier::judge(std::uint32_t partner, std::uint32_t value, std::uint32_t own) {
  if (value < kArrived) return {News::reported, std::int64_t{value} - kLost};
  heard_ |= std::uint32_t{1} << partner;
  if (value == kArrived || own == kArrived || value == own) return {};
  return {News::different, source(step_, partner)};
}

std::vector<Barrier::Rank> Barrier::missing() const {
  std::vector<Rank> found;
  for (std::uint32_t partner = 0; partner < partners(step_); ++partner) {
    if ((heard_ >> partner & 1) == 0) found.push_back(source(step_, partner));
  }
  return found;
}

std::vector<std::pair<Barrier::Rank, std::uint32_t>> Barrier::unreported() const {
  std::vector<std::pair<Rank, std::uint32_t>> found;
  for (std::uint32_t step = step_; partners(step) > 0; ++step) {
    for (std::uint32_t partner = step == step_ ? reported_ : 0; partner < partners(step);
         ++partner) {
      found.emplace_back(target(step, partner), slot(step, partner));
    }
  }
  return found;
}

}  // namespace zerohop::engine::collective
