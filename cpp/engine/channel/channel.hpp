// One authenticated and encrypted connection between two endpoints, carrying framed messages.
//
// Handshake, symmetric but for who begins:
//   prologue    8 bytes magic and version, 32 bytes ephemeral X25519 public key     (plaintext)
//   proof      24 random bytes that begin the stream, then its first frame, which is empty: only a
//              side that has the address's secret can make it
// The initiator sends its prologue at once; the acceptor stays silent until it has seen it. Keys
// are described in cipher.hpp. A frame is a 32-bit little-endian length of the ciphertext, which is
// authenticated with it, and the ciphertext.
//
// The parts of the handshake have fixed sizes, so a stranger makes this side hold no more than one
// read, 32 KiB; a peer that knows the secret makes it hold one frame besides.
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
  int code = 0;  // errno, 0 where there is none

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
  // What the two sides began with; the other's once it is open, on the thread in progress().
  const Prologue& own_prologue() const noexcept { return exchange_.prologue(); }
  const Prologue& their_prologue() const noexcept { return their_prologue_; }
  State state() const noexcept { return state_.load(std::memory_order_acquire); }

  // True while bytes wait for the socket: poll for output as well. send() may turn it true in any
  // thread, so whoever sends asks afterwards and wakes the thread that polls.
  bool wants_write() const;

  // Writes and reads what is possible without blocking and hands each message to `sink`, a bounded
  // number of bytes a call (made for level-triggered polling). One thread at a time. Returns false
  // when the channel is closed; failure() says why. The sink may send() on this channel; a
  // ProtocolError or PeerLost it throws closes the channel, other exceptions pass through.
  bool progress(const Sink& sink);

  // From any thread. Encrypts and queues, then writes what the socket takes. While handshaking the
  // message waits for the keys. Throws ProtocolError for more than kMaxMessage bytes, and the
  // failure when the channel is closed or becomes so; more than kMaxQueued bytes unsent means that
  // the peer does not read, which closes the channel as lost.
  void send(std::span<const std::byte> message);

  // Shuts the connection down from this side, from any thread; the first cause is the one kept.
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

  // With mutex_ held.
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
  std::vector<std::byte> in_;  // received, from in_begin_ on not yet used: less than one part
  std::size_t in_begin_ = 0;

  // Sending and the end: any thread, under the mutex.
  mutable Mutex<Rank::channel> mutex_;
  std::optional<Encryptor> encryptor_;
  std::vector<std::vector<std::byte>> waiting_;  // messages from before the channel was open
  std::size_t waiting_nbytes_ = 0;               // of waiting_, once encrypted
  std::vector<std::byte> out_;                   // encrypted, from out_begin_ on not yet written
  std::size_t out_begin_ = 0;
  int write_error_ = 0;  // errno of the socket's writing half, if it broke
  std::optional<ChannelFailure> failure_;
};

}  // namespace zerohop::engine
