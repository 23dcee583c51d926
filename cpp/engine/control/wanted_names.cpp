#include "engine/control/wanted_names.hpp"

namespace zerohop::engine {

void WantedNames::add(Link& link, std::uint64_t request, const std::string& name) {
  auto& its = by_link_[&link];
  if (its.contains(request)) return;
  if (its.size() >= kMost) {
    by_name_.erase(its.begin()->second);
    its.erase(its.begin());
  }
  const auto wish = by_name_.emplace(name, Wish{.link = &link, .request = request});
  try {
    its.emplace(request, wish);
  } catch (...) {
    by_name_.erase(wish);
    throw;
  }
}

std::vector<WantedNames::Wish> WantedNames::take(const std::string& name) {
  std::vector<Wish> wishes;
  const auto [first, last] = by_name_.equal_range(name);
  for (auto at = first; at != last; ++at) {
    const Wish& wish = wishes.emplace_back(at->second);
    const auto its = by_link_.find(wish.link);
    its->second.erase(wish.request);
    if (its->second.empty()) by_link_.erase(its);
  }
  by_name_.erase(first, last);
  return wishes;
}

void WantedNames::forget(Link& link) {
  const auto its = by_link_.extract(&link);
  if (its.empty()) return;
  for (const auto& [request, at] : its.mapped()) by_name_.erase(at);
}

}  // namespace zerohop::engine
