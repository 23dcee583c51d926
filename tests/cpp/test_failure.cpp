// An error kept as a value is thrown again as what it was.
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
  Failure failure{.message = "it failed" + effect_words(Effect::all), .effect = Effect::all};
  failure.set_effect(Effect::nothing);
  CHECK(failure.message == "it failed (nothing was written)");
  failure.explain("; nobody listened");
  CHECK(failure.message == "it failed; nobody listened (nothing was written)");
}

}  // namespace
}  // namespace zerohop::testing
