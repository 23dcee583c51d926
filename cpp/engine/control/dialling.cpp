#include "engine/control/dialling.hpp"

#include <cerrno>

#include "base/error.hpp"
#include "engine/control/control.hpp"

namespace zerohop::engine {
namespace {

std::string place(const Address& address) {
  return "endpoint '" + address.name + "' at " + address.host + ":" + std::to_string(address.port);
}

// The failure, with the address that was tried.
Failure refused_by(const Address& address, Failure failure) {
  const std::string what = failure.code == ECONNREFUSED
                               ? errno_message("nothing listens there", failure.code) +
                                     ": its process has ended, or the address is of an earlier run"
                               : failure.message;
  failure.message = "cannot connect to " + place(address) + ": " + what;
  return failure;
}

}  // namespace

Dialling::~Dialling() {
  if (done() || generation_ != fork_generation()) return;
  if (const auto control = control_.lock()) control->cancel(attempt_);
}

std::shared_ptr<Peer> Dialling::peer() const {
  if (attempt_->error) refused_by(attempt_->address, *attempt_->error).raise();
  return attempt_->peer;
}

std::string Dialling::late() const {
  return place(attempt_->address) +
         " did not answer in time: is its process running, and reachable from here?";
}

}  // namespace zerohop::engine
