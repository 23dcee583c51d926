#include "engine/peer/inquiry.hpp"

#include <stdexcept>

#include "base/error.hpp"
#include "engine/peer/peer.hpp"

namespace zerohop::engine {

void Inquiry::Answer::take(std::optional<RemoteMemory>&& memory) {
  if (done_.is()) return;
  if (memory) memory_ = std::move(memory);
  arrived_.store(true);
  if (memory_ || now_) done_.set();
}

void Inquiry::Answer::end() {
  if (!done_.is()) done_.set();
}

Inquiry::Inquiry(std::shared_ptr<Peer> peer, std::string name, bool now)
    : peer_(std::move(peer)),
      name_(std::move(name)),
      asked_(std::make_unique<Questions<Answer>::Asked>(peer_->lookups_)) {
  asked_->answer().now_ = now;
  peer_->host_->tell(peer_, Lookup{.request = asked_->number(), .name = name_});
  peer_->state_->check_alive();  // after sending: lose() ends all earlier requests
}

Inquiry::~Inquiry() {
  // A thread of the parent may hold the lock.
  if (peer_->state_->forked()) (void)asked_.release();
}

std::optional<RemoteMemory> Inquiry::memory() const {
  const Answer& answer = asked_->answer();
  if (!answer.memory_ && !(answer.now_ && answer.arrived_.load())) {
    peer_->state_->throw_lost(Effect::nothing);
  }
  return answer.memory_;
}

std::string Inquiry::late() const {
  return "peer '" + peer_->identity().name + "' " +
         (asked_->answer().arrived_.load() ? "does not share anything under the name '"
                                           : "did not answer the look-up of '") +
         name_ + "' in time: share it there, or give a longer timeout";
}

std::shared_ptr<Inquiry> Peer::ask(const std::string& name, bool now) {
  state_->check_alive();
  if (name.size() > kMaxNameBytes) {
    throw std::invalid_argument("a name has at most " + std::to_string(kMaxNameBytes) + " bytes");
  }
  return std::make_shared<Inquiry>(shared_from_this(), name, now);
}

std::optional<RemoteMemory> Peer::lookup(const std::string& name, const Deadline& deadline,
                                         bool now) {
  const auto inquiry = ask(name, now);
  if (!poller_->wait([&] { return inquiry->done(); }, deadline)) {
    throw TransferTimeout(inquiry->late());
  }
  return inquiry->memory();
}

void Peer::on_found(std::uint64_t request, std::optional<RemoteMemory> memory) {
  const auto answer = lookups_.find(request);
  if (!answer) return;  // no caller waits any more
  answer->take(std::move(memory));
  poller_->wake();
}

}  // namespace zerohop::engine
