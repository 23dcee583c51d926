// The identity of an Endpoint: its id is the hash of a public key, so nobody else can claim it,
// connected or not, and no state about earlier connections is needed.
//
// For each control connection, the owner of an id signs the prologue that it sent (cipher.hpp;
// Ed25519 of libsodium). Only the holder of the private half of that prologue's key can use the
// connection, so a replayed signature is worthless.
#pragma once

#include <array>
#include <cstddef>

#include "engine/channel/address.hpp"
#include "engine/channel/cipher.hpp"

namespace zerohop::engine {

// Sent in Hello.
struct IdProof {
  std::array<std::byte, 32> public_key{};
  std::array<std::byte, 64> signature{};
};

class EndpointKey {
 public:
  EndpointKey();  // a new key
  ~EndpointKey() { sodium_memzero(private_key_.data(), private_key_.size()); }
  EndpointKey(const EndpointKey&) = delete;
  EndpointKey& operator=(const EndpointKey&) = delete;

  const EndpointId& id() const noexcept { return id_; }
  // An address with this id and a fresh secret; the rest is empty.
  Address address() const;

  // For a connection on which this endpoint sent the prologue `own`.
  IdProof prove(const Prologue& own) const;

 private:
  std::array<std::byte, 32> public_key_;
  std::array<std::byte, 64> private_key_;
  EndpointId id_;
};

// Whether the side that sent the prologue `theirs` is that endpoint.
bool proves(const IdProof& proof, const EndpointId& id, const Prologue& theirs);

}  // namespace zerohop::engine
