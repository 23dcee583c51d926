#include "engine/peer/lookups.hpp"

#include <stdexcept>

#include "base/error.hpp"

namespace zerohop::engine {

std::shared_ptr<Inquiry> Lookups::ask(const std::string& name, bool now) {
  state_->check_alive();
  if (name.size() > kMaxNameBytes) {
    throw std::invalid_argument("a name has at most " + std::to_string(kMaxNameBytes) + " bytes");
  }
  return std::make_shared<Inquiry>(shared_from_this(), name, now);
}

std::optional<RemoteMemory> Lookups::find(const std::string& name, const Deadline& deadline,
                                          bool now) {
  const auto inquiry = ask(name, now);
  if (!poller_->wait([&] { return inquiry->done(); }, deadline)) {
    throw TransferTimeout(inquiry->late());
  }
  return inquiry->memory();
}

void Lookups::on_found(std::uint64_t request, std::optional<RemoteMemory> memory) {
  const auto answer = questions_.find(request);
  if (!answer) return;  // no caller waits any more
  answer->take(std::move(memory));
  poller_->wake();
}

void Lookups::end() {
  for (const auto& answer : questions_.all()) answer->end();
}

}  // namespace zerohop::engine
