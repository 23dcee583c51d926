#include "engine/memory/closing.hpp"

#include "base/report.hpp"

namespace zerohop::engine {

std::optional<Closing> Closing::begin(const WeakMemory& memory) noexcept {
  auto lease = memory.lease_.lock();
  if (!lease) return std::nullopt;
  std::shared_ptr<const Registration> last = lease->close();
  if (!last) return std::nullopt;
  return Closing(std::move(lease), std::move(last), memory.device_);
}

Closing::Closing(std::shared_ptr<Lease<const Registration>> lease,
                 std::shared_ptr<const Registration> last, std::string device) noexcept
    : lease_(std::move(lease)), device_(std::move(device)), owner_(last->owner) {
  if (lease_->is_of_parent()) return;  // as are its grants, and what peers may do
  last->grants.close();
  if (!last->regions) return;
  right_ = last->regions->staged_right();
  if (const auto& exposure = last->regions->exposure()) {
    exposures_ = exposure->exposures();
    entry_ = exposure->entry();
  }
  last.reset();  // deregisters, unless a transfer is in progress
  if (right_) right_->end();
}

bool Closing::is_awaited() const noexcept {
  return right_ && !right_->await(Deadline::after(Deadline::Seconds(0)));
}

void Closing::finish(const Deadline& deadline) noexcept {
  if (right_ && !right_->await(deadline)) {
    report({"a copy to or from memory on ", device_,
            " that a peer requested does not finish: the GPU hangs or failed, and the closed "
            "memory stays until the copy has finished"});
  }
  if (exposures_) exposures_->settle(entry_, deadline);
  lease_->finish();
}

}  // namespace zerohop::engine
