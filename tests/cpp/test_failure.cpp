// An error kept as a value is rethrown with its type.
#include <doctest/doctest.h>

#include <typeinfo>

#include "base/failure.hpp"

namespace zerohop::testing {
namespace {

TEST_CASE_TEMPLATE("a failure keeps type, message, code and effect", Thrown, Error, VerbsError,
                   CudaError, PeerLost, TransferTimeout, RegistrationError, RouteUnavailable,
                   ProtocolError, AuthenticationError) {
  Failure failure;
  try {
    throw Thrown("what failed", 7, Effect::some);
  } catch (const std::exception&) {
    failure = Failure::of_current_exception();
  }
  try {
    failure.raise();
  } catch (const Error& error) {
    CHECK(typeid(error) == typeid(Thrown));
    CHECK(std::string(error.what()) == "what failed");
    CHECK(error.code() == 7);
    CHECK(error.effect() == Effect::some);
  }
}

TEST_CASE("the words about the effect change with it, and stay at the end") {
  Failure failure = Failure{.message = "it failed"}.with_effect(Effect::all);
  CHECK(failure.message == "it failed (all of the data may have been written)");
  failure.set_effect(Effect::nothing);
  CHECK(failure.message == "it failed (nothing was written)");
  failure.explain("; nobody listened");
  CHECK(failure.message == "it failed; nobody listened (nothing was written)");
}

TEST_CASE("the words about the effect are known by their length, also once thrown") {
  // A message of a peer may end the same way: it stays.
  Failure failure{.message = "the peer says: no (nothing was written)"};
  failure.set_effect(Effect::some);
  CHECK(failure.message ==
        "the peer says: no (nothing was written) (some of the data may have been written)");
  try {
    failure.raise();
  } catch (const Error&) {
    failure = Failure::of_current_exception();
  }
  failure.set_effect(Effect::nothing);
  CHECK(failure.message == "the peer says: no (nothing was written) (nothing was written)");
}

}  // namespace
}  // namespace zerohop::testing
