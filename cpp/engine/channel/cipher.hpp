// The cryptography of the control channel: key agreement and one encrypted stream per direction.
//
// Both sides generate an ephemeral X25519 key, so a recorded connection stays unreadable even to
// an attacker who learns the secret later. The two stream keys are the halves of
//   BLAKE2b-512(key = the address's secret; X25519 result, initiator's prologue, acceptor's
//   prologue)
// so they depend on the secret, on both ephemeral keys and on the protocol version. Streams are
// libsodium's secretstream (XChaCha20-Poly1305): lost, repeated, reordered or changed frames fail.
#pragma once

#include <sodium.h>

#include <array>
#include <cstddef>
#include <optional>
#include <span>
#include <vector>

#include "engine/channel/address.hpp"

namespace zerohop::engine {

// Call before any other function of libsodium; cheap after the first call.
void prepare_sodium();

enum class Role { initiator, acceptor };

// A key that is wiped on destruction; neither copied nor moved.
struct WipedKey {
  std::array<unsigned char, 32> bytes{};
  WipedKey() = default;
  WipedKey(const WipedKey&) = delete;
  WipedKey& operator=(const WipedKey&) = delete;
  ~WipedKey() { wipe(); }
  void wipe() noexcept { sodium_memzero(bytes.data(), bytes.size()); }
};

struct SessionKeys {
  WipedKey send;
  WipedKey receive;
  void wipe() noexcept {
    send.wipe();
    receive.wipe();
  }
};

// The first bytes a side sends: 8 of magic and version, then its ephemeral public key.
using Prologue = std::array<std::byte, 40>;

// Whether the magic is right, for any version: other connections get no answer.
bool is_prologue(std::span<const std::byte> bytes);

class KeyExchange {
 public:
  KeyExchange(const Secret& secret, Role role);

  const Prologue& prologue() const noexcept { return prologue_; }

  // Throws ProtocolError when the bytes are not a prologue or of another version, and
  // AuthenticationError for a public key whose result anybody could compute.
  void derive(std::span<const std::byte> remote_prologue, SessionKeys& keys) const;

  void wipe() noexcept;  // wipes the secrets, once the keys are derived

 private:
  Role role_;
  WipedKey secret_;
  WipedKey private_key_;
  Prologue prologue_;
};

inline constexpr std::size_t kHeaderBytes = crypto_secretstream_xchacha20poly1305_HEADERBYTES;
inline constexpr std::size_t kFrameOverhead = crypto_secretstream_xchacha20poly1305_ABYTES;
inline constexpr std::size_t kLengthBytes = 4;

class Encryptor {
 public:
  explicit Encryptor(const WipedKey& key);
  Encryptor(const Encryptor&) = delete;
  Encryptor& operator=(const Encryptor&) = delete;
  ~Encryptor() { sodium_memzero(&state_, sizeof(state_)); }

  std::span<const std::byte> header() const noexcept { return std::as_bytes(std::span(header_)); }

  // Appends one frame, including its length, to `out`.
  void append_frame(std::span<const std::byte> message, std::vector<std::byte>& out);

 private:
  crypto_secretstream_xchacha20poly1305_state state_;
  std::array<unsigned char, kHeaderBytes> header_;
};

class Decryptor {
 public:
  Decryptor(const WipedKey& key, std::span<const std::byte, kHeaderBytes> header);
  Decryptor(const Decryptor&) = delete;
  Decryptor& operator=(const Decryptor&) = delete;
  ~Decryptor() { sodium_memzero(&state_, sizeof(state_)); }

  // `frame` includes the length. Empty when it is not the other side's next frame.
  std::optional<std::vector<std::byte>> open_frame(std::span<const std::byte> frame);

 private:
  crypto_secretstream_xchacha20poly1305_state state_;
};

}  // namespace zerohop::engine
