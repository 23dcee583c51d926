// Who an Endpoint is: its id is the hash of a public key, so that nobody else can say that it is
// that one, whether or not it is connected, and nothing need be remembered of earlier connections.
//
// The owner of an id signs, for each control connection, the prologue that it began it with
// (cipher.hpp; Ed25519 of libsodium). Only who has the private half of that prologue's key can read
// and write on the connection, so a signature that was seen elsewhere is of no use to another.
#pragma once

#include <array>
#include <cstddef>

#include "engine/channel/address.hpp"
#include "engine/channel/cipher.hpp"

namespace zerohop::engine {

// Told in Hello.
struct IdProof {
  std::array<std::byte, 32> public_key{};
  std::array<std::byte, 64> signature{};
};

class EndpointKey {
 public:
  EndpointKey();  // of its own
  ~EndpointKey() { sodium_memzero(private_key_.data(), private_key_.size()); }
  EndpointKey(const EndpointKey&) = delete;
  EndpointKey& operator=(const EndpointKey&) = delete;

  const EndpointId& id() const noexcept { return id_; }
  // An address with this id and a fresh secret, the rest empty.
  Address address() const;

  // On a connection that this endpoint began with `own`, on either side.
  IdProof prove(const Prologue& own) const;

 private:
  std::array<std::byte, 32> public_key_;
  std::array<std::byte, 64> private_key_;
  EndpointId id_;
};

// Whether who began its side of the connection with `theirs` is that endpoint.
bool proves(const IdProof& proof, const EndpointId& id, const Prologue& theirs);

}  // namespace zerohop::engine
