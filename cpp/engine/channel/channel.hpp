// One authenticated and encrypted connection between two endpoints, carrying framed messages.
//
// Handshake, symmetric except for who starts:
//   prologue    8 bytes magic and version, 32 bytes ephemeral X25519 public key     (plaintext)
//   proof       24 random bytes that begin the stream, then an empty first frame: only a side that
//               has the address's secret can produce it
// The initiator sends its prologue at once; the acceptor stays silent until it has seen it. See
// cipher.hpp for the keys. A frame is the 32-bit little-endian length of the ciphertext,
// authenticated with it, followed by the ciphertext.
//
// The parts of the handshake have fixed sizes, so an unauthenticated connection makes this side
// buffer at most one read, 32 KiB; a peer that knows the secret, one frame more.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "base/locks.hpp"
#include "base/unique_fd.hpp"
#include "engine/channel/address.hpp"
#include "engine/channel/cipher.hpp"

namespace zerohop::engine {

// Why a channel ended; a plain value, so that every thread can throw its own copy.
struct ChannelFailure {
  enum class Kind {
    lost,            // PeerLost: closed, reset, unreachable, or the peer does not read
    authentication,  // AuthenticationError: the other side does not know the secret
    protocol,        // ProtocolError: bytes that no correct peer sends
  };
  Kind kind;
  std::string message;
  int code = 0;  // errno, or 0

  [[noreturn]] void raise() const;
};

class Channel {
 public:
  static constexpr std::size_t kMaxMessage = std::size_t{1} << 20;  // bytes of plaintext in a frame
  static constexpr std::size_t kMaxQueued = std::size_t{16} << 20;  // bytes waiting to be sent

  enum class State { handshaking, open, closed };
  using Sink = std::function<void(std::span<const std::byte>)>;

  // Takes a stream socket, blocking or not. The initiator's may still be connecting.
  static std::unique_ptr<Channel> initiate(UniqueFd fd, const Secret& secret_of_remote);
  static std::unique_ptr<Channel> accept(UniqueFd fd, const Secret& own_secret);
  ~Channel();

  int fd() const noexcept { return fd_.get(); }  // stays open, though shut down, until destruction
  // The prologues of the two sides; the remote one only once open, on the thread in progress().
  const Prologue& own_prologue() const noexcept { return exchange_.prologue(); }
  const Prologue& their_prologue() const noexcept { return their_prologue_; }
  State state() const noexcept { return state_.load(std::memory_order_acquire); }

  // True while bytes wait for the socket: poll for output as well. send() may make it true in any
  // thread, so the sender must check it afterwards and wake the polling thread.
  bool wants_write() const;

  // Writes and reads what is possible without blocking and passes each message to `sink`; handles a
  // bounded number of bytes per call (made for level-triggered polling). One thread at a time.
  // Returns false when the channel is closed; failure() has the reason. The sink may send() on this
  // channel; a ProtocolError or PeerLost that it throws closes the channel, other exceptions
  // propagate.
  bool progress(const Sink& sink);

  // Thread-safe. Encrypts and queues, then writes what the socket takes. During the handshake the
  // message waits for the keys. Throws ProtocolError for more than kMaxMessage bytes, and the
  // failure when the channel is closed or closes now. More than kMaxQueued unsent bytes mean that
  // the peer does not read; the channel then closes as lost.
  void send(std::span<const std::byte> message);

  // Shuts the connection down from this side, from any thread; the first cause is kept.
  void close(const std::string& reason);

  std::optional<ChannelFailure> failure() const;

 private:
  // What the next received bytes are.
  enum class Stage { prologue, proof, frames };

  Channel(UniqueFd fd, const Secret& secret, Role role);

  bool read_some(const Sink& sink);
  void consume(const Sink& sink);
  std::size_t next_part_nbytes(std::span<const std::byte> received) const;
  void on_part(std::span<const std::byte> part, const Sink& sink);
  void on_prologue(std::span<const std::byte> prologue);
  void on_proof(std::span<const std::byte> proof);
  void on_frame(std::span<const std::byte> frame, const Sink& sink);
  void end_of_stream();

  // Call with mutex_ held.
  void append(std::span<const std::byte> bytes);
  void flush();
  void end(ChannelFailure failure);
  void forget_waiting();

  void fail(ChannelFailure failure);

  const UniqueFd fd_;
  const Role role_;
  std::atomic<State> state_{State::handshaking};

  // Receiving: only the thread in progress().
  Stage stage_ = Stage::prologue;
  KeyExchange exchange_;
  Prologue their_prologue_{};
  SessionKeys keys_;
  std::optional<Decryptor> decryptor_;
  std::vector<std::byte> in_;  // received, unconsumed from in_begin_ on: less than one part
  std::size_t in_begin_ = 0;

  // Sending and closing: any thread, under the mutex.
  mutable Mutex<Rank::channel> mutex_;
  std::optional<Encryptor> encryptor_;
  std::vector<std::vector<std::byte>> waiting_;  // queued before the channel was open
  std::size_t waiting_nbytes_ = 0;               // of waiting_, after encryption
  std::vector<std::byte> out_;                   // encrypted, unwritten from out_begin_ on
  std::size_t out_begin_ = 0;
  int write_error_ = 0;  // errno of a failed write
  std::optional<ChannelFailure> failure_;
};

}  // namespace zerohop::engine
