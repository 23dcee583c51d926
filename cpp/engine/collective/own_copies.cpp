#include "engine/collective/own_copies.hpp"

#include <algorithm>

#include "base/stream_copy.hpp"

namespace zerohop::engine::collective {

std::uint64_t OwnCopies::nbytes() const noexcept {
  std::uint64_t sum = 0;
  for (const Copy& copy : left_) sum += copy.target.nbytes;
  return sum - copied_;
}

void OwnCopies::copy_part(std::uint64_t most, bool past) noexcept {
  if (done()) return;
  const auto& [target, source] = left_.front();
  std::byte* const to = schedule_->at(target);
  const std::byte* const from = schedule_->at(source);
  const std::uint64_t left = target.nbytes - copied_;
  const std::uint64_t nbytes = to == from ? left : std::min(most, left);
  if (to != from && nbytes > 0) copy_bytes(to + copied_, from + copied_, nbytes, past);
  copied_ += nbytes;
  if (copied_ < target.nbytes) return;
  left_ = left_.subspan(1);
  copied_ = 0;
}

}  // namespace zerohop::engine::collective
