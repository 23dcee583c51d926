#include "engine/path/verbs/rail_group.hpp"

#include <algorithm>
#include <bit>

#include "engine/path/verbs/peer_rail.hpp"

namespace zerohop::engine {

void RailGroup::set_serving(RailIndex rail, bool serves) noexcept {
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

void RailGroup::add(RailIndex rail, PeerRail* peer_rail) {
  if (members_.size() <= rail) members_.resize(rail + 1u, nullptr);
  members_[rail] = peer_rail;
}

void RailGroup::remove(RailIndex rail) noexcept {
  if (rail < members_.size()) members_[rail] = nullptr;
}

RailMask RailGroup::open_rails() const noexcept {
  RailMask mask = 0;
  for (RailIndex rail = 0; rail < members_.size(); ++rail) {
    if (members_[rail] && !members_[rail]->closed()) mask |= RailMask{1} << rail;
  }
  return mask;
}

std::unique_ptr<const Fence> RailGroup::make_fence(RailIndex rail) const {
  std::unique_ptr<Fence> fence;
  for (RailIndex other = 0; other < members_.size(); ++other) {
    if (other == rail || !members_[other] || members_[other]->jobs_pending() == 0) continue;
    if (!fence) fence = std::make_unique<Fence>();
    (*fence)[other] = members_[other]->last_job();
  }
  return fence;
}

bool RailGroup::passed(const Fence& fence) const noexcept {
  for (RailIndex rail = 0; rail < members_.size(); ++rail) {
    if (fence[rail] > 0 && members_[rail] && members_[rail]->jobs_done() < fence[rail])
      return false;
  }
  return true;
}

void RailGroup::advance_others(RailIndex rail) {
  for (RailIndex other = 0; other < members_.size(); ++other) {
    if (other != rail && members_[other]) members_[other]->advance_waiting();
  }
}

RailGroup::Since RailGroup::unsettled(RailIndex rail) const noexcept {
  if (((unsettled_ >> rail) & 1) == 0) return std::nullopt;
  return unsettled_since_[rail];
}

void RailGroup::unsettle(RailIndex rail) noexcept {
  stir();
  if (!unsettled(rail)) unsettled_since_[rail] = Clock::now();
  unsettled_ |= RailMask{1} << rail;
}

void RailGroup::settle(RailIndex rail) {
  unsettled_ &= ~(RailMask{1} << rail);
  for (PeerRail* peer_rail : members_) {
    if (peer_rail) peer_rail->advance_waiting();
  }
}

void RailGroup::fail_followers(RailIndex rail, std::uint64_t before, std::uint64_t upto) {
  for (PeerRail* peer_rail : members_) {
    if (peer_rail) peer_rail->fail_followers_of(rail, before, upto);
  }
  advance_others(rail);
}

void RailGroup::release_credits() {
  for (PeerRail* peer_rail : members_) {
    if (peer_rail) peer_rail->release_credits();
  }
}

}  // namespace zerohop::engine
