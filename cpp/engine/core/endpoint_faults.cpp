// Injected faults: passed on to the devices of an Endpoint, which must all be soft.
#include <algorithm>
#include <mutex>
#include <stdexcept>

#include "engine/core/endpoint.hpp"
#include "softhca/device_faults.hpp"

namespace zerohop::engine {

void Endpoint::set_faults(const softhca::Faults& faults) {
  const Entered entered = enter();
  put_faults(faults);
}

void Endpoint::put_faults(const softhca::Faults& faults) {
  const auto is_adapter = [](const auto& rail) { return !rail->software(); };
  const auto adapter = std::ranges::find_if(rails_, is_adapter);
  if (adapter != rails_.end()) {
    if (!faults.any()) return;
    throw std::invalid_argument("faults are for the software HCA, and " + (*adapter)->name() +
                                " is an adapter: take device='soft0', or neither faults= nor "
                                "ZEROHOP_FAULTS");
  }
  const std::lock_guard lock(faults_mutex_);
  for (const auto& rail : rails_) {
    softhca::Faults own = faults;
    own.seed += rail->index();  // otherwise the same requests would fail on all rails
    softhca::set_faults(rail->device().context(), own);
  }
  faults_ = faults;
}

softhca::Faults Endpoint::faults() const {
  check_process();
  const std::lock_guard lock(faults_mutex_);
  return faults_;
}

std::map<std::string, std::uint64_t> Endpoint::fault_counts() const {
  std::map<std::string, std::uint64_t> sums;
  for (const auto& counts : fault_counts_) {
    for (std::size_t i = 0; i < softhca::kFaults; ++i) {
      const auto fault = static_cast<softhca::Fault>(i);
      if (counts->of(fault) > 0) sums[softhca::fault_name(fault)] += counts->of(fault);
    }
  }
  return sums;
}

}  // namespace zerohop::engine
