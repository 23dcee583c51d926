#include "engine/peer/inquiry.hpp"

#include "engine/peer/lookups.hpp"

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

Inquiry::Inquiry(std::shared_ptr<Lookups> lookups, std::string name, bool now)
    : lookups_(std::move(lookups)),
      name_(std::move(name)),
      asked_(std::make_unique<Questions<Answer>::Asked>(lookups_->questions_)) {
  asked_->answer().now_ = now;
  lookups_->tell_(Lookup{.request = asked_->number(), .name = name_});
  lookups_->state_->check_alive();  // after sending: end() ends all earlier requests
}

Inquiry::~Inquiry() {
  // A thread of the parent may hold the lock.
  if (lookups_->state_->forked()) (void)asked_.release();
}

std::optional<RemoteMemory> Inquiry::memory() const {
  const Answer& answer = asked_->answer();
  if (!answer.memory_ && !(answer.now_ && answer.arrived_.load())) {
    lookups_->state_->throw_lost(Effect::nothing);
  }
  return answer.memory_;
}

std::string Inquiry::late() const {
  return "peer '" + lookups_->state_->name() + "' " +
         (asked_->answer().arrived_.load() ? "does not share anything under the name '"
                                           : "did not answer the look-up of '") +
         name_ + "' in time: share it there, or give a longer timeout";
}

}  // namespace zerohop::engine
