#include "engine/channel/endpoint_key.hpp"

#include <sodium.h>

#include <algorithm>
#include <span>

#include "base/random.hpp"

namespace zerohop::engine {
namespace {

static_assert(sizeof(IdProof::public_key) == crypto_sign_PUBLICKEYBYTES);
static_assert(sizeof(IdProof::signature) == crypto_sign_BYTES);
static_assert(sizeof(EndpointId) >= crypto_generichash_BYTES_MIN);

unsigned char* raw(std::byte* bytes) { return reinterpret_cast<unsigned char*>(bytes); }
const unsigned char* raw(const std::byte* bytes) {
  return reinterpret_cast<const unsigned char*>(bytes);
}

EndpointId id_of(std::span<const std::byte> public_key) {
  EndpointId id;
  crypto_generichash(raw(id.data()), id.size(), raw(public_key.data()), public_key.size(), nullptr,
                     0);
  return id;
}

// Prefix of what is signed; separates it from anything else that a key might sign.
constexpr std::array kSigned = {std::byte{'z'}, std::byte{'h'}, std::byte{'i'}, std::byte{'d'}};
using Statement = std::array<std::byte, sizeof kSigned + sizeof(Prologue)>;

Statement statement(const Prologue& begun_with) {
  Statement words;
  std::ranges::copy(begun_with, std::ranges::copy(kSigned, words.begin()).out);
  return words;
}

}  // namespace

EndpointKey::EndpointKey() {
  prepare_sodium();
  static_assert(sizeof private_key_ == crypto_sign_SECRETKEYBYTES);
  crypto_sign_keypair(raw(public_key_.data()), raw(private_key_.data()));
  id_ = id_of(public_key_);
}

Address EndpointKey::address() const {
  Address address;
  address.id = id_;
  fill_random(address.secret);
  return address;
}

IdProof EndpointKey::prove(const Prologue& own) const {
  const Statement words = statement(own);
  IdProof proof{.public_key = public_key_, .signature = {}};
  crypto_sign_detached(raw(proof.signature.data()), nullptr, raw(words.data()), words.size(),
                       raw(private_key_.data()));
  return proof;
}

bool proves(const IdProof& proof, const EndpointId& id, const Prologue& theirs) {
  if (!same_id(id_of(proof.public_key), id)) return false;
  const Statement words = statement(theirs);
  return crypto_sign_verify_detached(raw(proof.signature.data()), raw(words.data()), words.size(),
                                     raw(proof.public_key.data())) == 0;
}

}  // namespace zerohop::engine
