#include "engine/path/verbs/path_group.hpp"

#include <algorithm>
#include <bit>

#include "engine/path/verbs/verbs_path.hpp"

namespace zerohop::engine {

void PathGroup::set_serving(RailIndex rail, bool serves) noexcept {
  stir();
  const RailMask bit = RailMask{1} << rail;
  const RailMask now = serves ? serving() | bit : serving() & ~bit;  // writers hold the lock
  serving_.store(now, std::memory_order_release);
  if (now != 0) {
    dark_.reset();
  } else if (!dark_) {
    dark_ = Clock::now();
  }
  const RailMask candidates = now != 0 ? now : open_rails();
  if (candidates != 0 && ((candidates >> message_rail()) & 1) == 0) {
    message_rail_.store(static_cast<RailIndex>(std::countr_zero(candidates)),
                        std::memory_order_relaxed);
  }
}

void PathGroup::add(RailIndex rail, VerbsPath* path) {
  if (paths_.size() <= rail) paths_.resize(rail + 1u, nullptr);
  paths_[rail] = path;
}

void PathGroup::remove(RailIndex rail) noexcept {
  if (rail < paths_.size()) paths_[rail] = nullptr;
}

RailMask PathGroup::open_rails() const noexcept {
  RailMask mask = 0;
  for (RailIndex rail = 0; rail < paths_.size(); ++rail) {
    if (paths_[rail] && !paths_[rail]->closed()) mask |= RailMask{1} << rail;
  }
  return mask;
}

std::unique_ptr<const Fence> PathGroup::make_fence(RailIndex rail) const {
  std::unique_ptr<Fence> fence;
  for (RailIndex other = 0; other < paths_.size(); ++other) {
    if (other == rail || !paths_[other] || paths_[other]->jobs_pending() == 0) continue;
    if (!fence) fence = std::make_unique<Fence>();
    (*fence)[other] = paths_[other]->last_job();
  }
  return fence;
}

bool PathGroup::passed(const Fence& fence) const noexcept {
  for (RailIndex rail = 0; rail < paths_.size(); ++rail) {
    if (fence[rail] > 0 && paths_[rail] && paths_[rail]->jobs_done() < fence[rail]) return false;
  }
  return true;
}

void PathGroup::advance_others(RailIndex rail) {
  for (RailIndex other = 0; other < paths_.size(); ++other) {
    if (other != rail && paths_[other]) paths_[other]->advance_waiting();
  }
}

PathGroup::Since PathGroup::unsettled(RailIndex rail) const noexcept {
  if (((unsettled_ >> rail) & 1) == 0) return std::nullopt;
  return unsettled_since_[rail];
}

void PathGroup::unsettle(RailIndex rail) noexcept {
  stir();
  if (!unsettled(rail)) unsettled_since_[rail] = Clock::now();
  unsettled_ |= RailMask{1} << rail;
}

void PathGroup::settle(RailIndex rail) {
  unsettled_ &= ~(RailMask{1} << rail);
  for (VerbsPath* path : paths_) {
    if (path) path->advance_waiting();
  }
}

void PathGroup::fail_followers(RailIndex rail, std::uint64_t before, std::uint64_t upto) {
  for (VerbsPath* path : paths_) {
    if (path) path->fail_followers_of(rail, before, upto);
  }
  advance_others(rail);
}

void PathGroup::release_credits() {
  for (VerbsPath* path : paths_) {
    if (path) path->release_credits();
  }
}

}  // namespace zerohop::engine
