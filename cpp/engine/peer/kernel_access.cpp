#include "engine/peer/kernel_access.hpp"

#include <stdexcept>
#include <string>

namespace zerohop::engine {
namespace {

void check_one_range(const Layout& layout, const char* which) {
  if (!layout.is_contiguous() || layout.nbytes() == 0) {
    throw std::invalid_argument(
        std::string("a device queue moves contiguous ranges of memory: the ") + which +
        " array must be contiguous and not empty");
  }
}

}  // namespace

void KernelAccess::check(const Pair& pair) const {
  state_->check_alive();
  state_->check_ends(pair);
  check_one_range(pair.local->layout(), "local");
  check_one_range(pair.remote->layout, "remote");
}

KernelReach KernelAccess::mapped(const Pair& pair, Hearers hearers, double timeout) const {
  check(pair);
  return gpu_.reach_for_kernels(pair, hearers, timeout);
}

EntryReach KernelAccess::entries(const Pair& pair) const {
  check(pair);
  return devices_->reach_for_entries(pair);
}

DirectReach KernelAccess::direct(const Pair& pair, const RingPlaces& places,
                                 const Deadline& deadline) {
  return links_->open(entries(pair), *pair.remote, places, deadline);
}

}  // namespace zerohop::engine
