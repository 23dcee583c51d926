#include "engine/control/dials.hpp"

namespace zerohop::engine {

bool Dials::add(const std::shared_ptr<Attempt>& attempt) {
  auto& dial = dials_[attempt->address.id];
  dial.waiting.push_back(attempt);
  if (dial.waiting.size() > 1) return false;
  dial.number = ++last_;
  return true;
}

std::uint64_t Dials::number(const EndpointId& id) const {
  const auto found = dials_.find(id);
  return found == dials_.end() ? 0 : found->second.number;
}

bool Dials::remove(const std::shared_ptr<Attempt>& attempt) {
  const auto found = dials_.find(attempt->address.id);
  if (found == dials_.end()) return false;
  std::erase(found->second.waiting, attempt);
  if (!found->second.waiting.empty()) return false;
  dials_.erase(found);
  return true;
}

bool Dials::finish(const EndpointId& id, const std::shared_ptr<Peer>& peer,
                   const std::optional<Failure>& error) {
  const auto dial = dials_.extract(id);
  if (dial.empty()) return false;
  for (const auto& attempt : dial.mapped().waiting) {
    attempt->peer = peer;
    attempt->error = error;
    attempt->done.set();
  }
  return true;
}

void Dials::finish_all(const Failure& error) {
  while (!dials_.empty()) finish(dials_.begin()->first, nullptr, error);
}

void Dials::dial_again(const EndpointId& id, Clock::time_point when) {
  const auto found = dials_.find(id);
  if (found != dials_.end()) found->second.again_at = when;
}

std::vector<Address> Dials::due(Clock::time_point now) {
  std::vector<Address> addresses;
  for (auto& [id, dial] : dials_) {
    if (now < dial.again_at) continue;
    dial.again_at = Clock::time_point::max();
    addresses.push_back(dial.waiting.front()->address);
  }
  return addresses;
}

}  // namespace zerohop::engine
