#include "base/failure.hpp"

#include <exception>
#include <stdexcept>

namespace zerohop {
namespace {

Failure make(Failure::Kind kind, const Error& error) {
  return {.kind = kind,
          .message = error.what(),
          .code = error.code(),
          .effect = error.effect(),
          .effect_words = error.effect_words()};
}

std::string words_of(Effect effect) {
  if (effect == Effect::nothing) return " (nothing was written)";
  return std::string(" (") + effect_name(effect) + " of the data may have been written)";
}

}  // namespace

Failure Failure::of_current_exception() {
  try {
    throw;
  } catch (const VerbsError& error) {
    return make(Kind::verbs, error);
  } catch (const CudaError& error) {
    return make(Kind::cuda, error);
  } catch (const PeerLost& error) {
    return make(Kind::peer_lost, error);
  } catch (const TransferTimeout& error) {
    return make(Kind::timeout, error);
  } catch (const RegistrationError& error) {
    return make(Kind::registration, error);
  } catch (const RouteUnavailable& error) {
    return make(Kind::route_unavailable, error);
  } catch (const AuthenticationError& error) {
    return make(Kind::authentication, error);
  } catch (const ProtocolError& error) {
    return make(Kind::protocol, error);
  } catch (const IntegrityError& error) {
    Failure failure = make(Kind::integrity, error);
    failure.offset = error.offset();
    failure.nbytes = error.nbytes();
    return failure;
  } catch (const Error& error) {
    return make(Kind::error, error);
  } catch (const std::invalid_argument& error) {
    return {.kind = Kind::invalid_argument, .message = error.what()};
  } catch (const std::exception& error) {
    return {.kind = Kind::error, .message = error.what()};
  }
}

void Failure::set_effect(Effect changed) {
  const std::string words = words_of(changed);
  message.replace(message.size() - effect_words, effect_words, words);
  effect = changed;
  effect_words = words.size();
}

void Failure::explain(const std::string& more) {
  message.insert(message.size() - effect_words, more);
}

void Failure::raise() const {
  switch (kind) {
    case Kind::error: break;
    case Kind::verbs: throw VerbsError(message, code, effect, effect_words);
    case Kind::cuda: throw CudaError(message, code, effect, effect_words);
    case Kind::peer_lost: throw PeerLost(message, code, effect, effect_words);
    case Kind::timeout: throw TransferTimeout(message, code, effect, effect_words);
    case Kind::registration: throw RegistrationError(message, code, effect, effect_words);
    case Kind::route_unavailable: throw RouteUnavailable(message, code, effect, effect_words);
    case Kind::authentication: throw AuthenticationError(message, code, effect, effect_words);
    case Kind::protocol: throw ProtocolError(message, code, effect, effect_words);
    case Kind::integrity: throw IntegrityError(message, effect, offset, nbytes, effect_words);
    case Kind::invalid_argument: throw std::invalid_argument(message);
  }
  throw Error(message, code, effect, effect_words);
}

}  // namespace zerohop
