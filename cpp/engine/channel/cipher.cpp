#include "engine/channel/cipher.hpp"

#include <algorithm>
#include <cstring>
#include <string>

#include "base/error.hpp"
#include "base/wire.hpp"

namespace zerohop::engine {
namespace {

constexpr std::uint8_t kProtocolVersion = 1;
constexpr std::size_t kMagicBytes = 7;
constexpr std::size_t kPublicKeyAt = kMagicBytes + sizeof(kProtocolVersion);
constexpr std::array<char, kMagicBytes> kCipherMagic = {'z', 'e', 'r', 'o', 'h', 'o', 'p'};

static_assert(sizeof(Prologue) == kPublicKeyAt + crypto_scalarmult_BYTES);
static_assert(sizeof(WipedKey::bytes) == crypto_scalarmult_SCALARBYTES);
static_assert(sizeof(WipedKey::bytes) == crypto_secretstream_xchacha20poly1305_KEYBYTES);
static_assert(sizeof(Secret) <= crypto_generichash_KEYBYTES_MAX);

const unsigned char* raw(std::span<const std::byte> bytes) {
  return reinterpret_cast<const unsigned char*>(bytes.data());
}

unsigned char* raw(std::span<std::byte> bytes) {
  return reinterpret_cast<unsigned char*>(bytes.data());
}

void check_prologue(std::span<const std::byte> prologue) {
  if (!is_prologue(prologue)) {
    throw ProtocolError(
        "the other side does not speak zerohop's control protocol; check the address's host and "
        "port");
  }
  const auto version = std::to_integer<unsigned>(prologue[kMagicBytes]);
  if (version != kProtocolVersion) {
    throw ProtocolError("the other side speaks version " + std::to_string(version) +
                        " of the control protocol, this side version " +
                        std::to_string(kProtocolVersion) +
                        "; install the same version of zerohop on both sides");
  }
}

}  // namespace

void prepare_sodium() {
  // sodium_init may be called from several threads at once; 1 means that it had run before.
  static const bool ready = ::sodium_init() >= 0;
  if (!ready) throw Error("libsodium cannot start; this system has no source of randomness");
}

bool is_prologue(std::span<const std::byte> bytes) {
  return bytes.size() == sizeof(Prologue) &&
         std::memcmp(bytes.data(), kCipherMagic.data(), kMagicBytes) == 0;
}

KeyExchange::KeyExchange(const Secret& secret, Role role) : role_(role) {
  prepare_sodium();
  std::memcpy(secret_.bytes.data(), secret.data(), secret.size());
  randombytes_buf(private_key_.bytes.data(), private_key_.bytes.size());
  std::memcpy(prologue_.data(), kCipherMagic.data(), kMagicBytes);
  prologue_[kMagicBytes] = std::byte{kProtocolVersion};
  crypto_scalarmult_base(raw(std::span(prologue_).subspan(kPublicKeyAt)),
                         private_key_.bytes.data());
}

void KeyExchange::derive(std::span<const std::byte> remote_prologue, SessionKeys& keys) const {
  check_prologue(remote_prologue);
  WipedKey shared;
  // Fails for points of low order, whose result is zero for every private key.
  if (crypto_scalarmult(shared.bytes.data(), private_key_.bytes.data(),
                        raw(remote_prologue.subspan(kPublicKeyAt))) != 0) {
    throw AuthenticationError("the other side sent a forged public key; refuse its connections");
  }
  std::span<const std::byte> initiator = prologue_;
  std::span<const std::byte> acceptor = remote_prologue;
  if (role_ == Role::acceptor) std::swap(initiator, acceptor);

  std::array<unsigned char, 64> both;
  crypto_generichash_state hash;
  crypto_generichash_init(&hash, secret_.bytes.data(), secret_.bytes.size(), both.size());
  crypto_generichash_update(&hash, shared.bytes.data(), shared.bytes.size());
  crypto_generichash_update(&hash, raw(initiator), initiator.size());
  crypto_generichash_update(&hash, raw(acceptor), acceptor.size());
  crypto_generichash_final(&hash, both.data(), both.size());
  // The first half encrypts what the initiator sends, the second what the acceptor sends.
  std::span<const unsigned char, 32> send = std::span(both).first<32>();
  std::span<const unsigned char, 32> receive = std::span(both).last<32>();
  if (role_ == Role::acceptor) std::swap(send, receive);
  std::ranges::copy(send, keys.send.bytes.begin());
  std::ranges::copy(receive, keys.receive.bytes.begin());
  sodium_memzero(both.data(), both.size());
  sodium_memzero(&hash, sizeof(hash));
}

void KeyExchange::wipe() noexcept {
  secret_.wipe();
  private_key_.wipe();
}

Encryptor::Encryptor(const WipedKey& key) {
  crypto_secretstream_xchacha20poly1305_init_push(&state_, header_.data(), key.bytes.data());
}

void Encryptor::append_frame(std::span<const std::byte> message, std::vector<std::byte>& out) {
  const std::size_t nbytes = message.size() + kFrameOverhead;
  WireWriter length;
  length.number(static_cast<std::uint32_t>(nbytes));
  const std::size_t begin = out.size();
  out.resize(begin + kLengthBytes + nbytes);
  std::ranges::copy(length.bytes(), out.begin() + static_cast<std::ptrdiff_t>(begin));
  crypto_secretstream_xchacha20poly1305_push(
      &state_, raw(std::span(out).subspan(begin + kLengthBytes)), nullptr, raw(message),
      message.size(), raw(length.bytes()), kLengthBytes,
      crypto_secretstream_xchacha20poly1305_TAG_MESSAGE);
}

Decryptor::Decryptor(const WipedKey& key, std::span<const std::byte, kHeaderBytes> header) {
  crypto_secretstream_xchacha20poly1305_init_pull(&state_, raw(header), key.bytes.data());
}

std::optional<std::vector<std::byte>> Decryptor::open_frame(std::span<const std::byte> frame) {
  const std::span<const std::byte> sealed = frame.subspan(kLengthBytes);
  std::vector<std::byte> message(sealed.size() - kFrameOverhead);
  unsigned char tag = 0;
  const int refused = crypto_secretstream_xchacha20poly1305_pull(
      &state_, raw(std::span(message)), nullptr, &tag, raw(sealed), sealed.size(), raw(frame),
      kLengthBytes);
  if (refused != 0) return std::nullopt;
  return message;
}

}  // namespace zerohop::engine
