#include "engine/channel/channel.hpp"

#include <sys/socket.h>

#include <algorithm>
#include <cerrno>
#include <utility>

#include "base/error.hpp"
#include "base/wire.hpp"

namespace zerohop::engine {
namespace {

constexpr std::size_t kReadBytes = 32 * 1024;  // of one recv, on the stack
constexpr int kReadsPerProgress = 8;           // one busy peer must not starve the others
constexpr std::size_t kKeptCapacity = 4096;    // of an idle buffer: there may be thousands of peers
constexpr std::size_t kProofBytes = kHeaderBytes + kLengthBytes + kFrameOverhead;
constexpr std::size_t kMaxFrame = Channel::kMaxMessage + kFrameOverhead;

using Kind = ChannelFailure::Kind;

// Drops the first `begin` bytes, and frees the memory once nothing is left.
void discard(std::vector<std::byte>& bytes, std::size_t& begin) {
  if (begin == bytes.size()) {
    bytes.clear();
    if (bytes.capacity() > kKeptCapacity) bytes = {};
    begin = 0;
  } else if (begin > bytes.size() / 2) {
    bytes.erase(bytes.begin(), bytes.begin() + static_cast<std::ptrdiff_t>(begin));
    begin = 0;
  }
}

ChannelFailure broken(int error_number) {
  return {Kind::lost,
          errno_message("the control connection broke", error_number) +
              "; check that the process behind the address still runs and can be reached",
          error_number};
}

}  // namespace

void ChannelFailure::raise() const {
  switch (kind) {
    case Kind::authentication: throw AuthenticationError(message, code);
    case Kind::protocol: throw ProtocolError(message, code);
    case Kind::lost: break;
  }
  throw PeerLost(message, code);
}

std::unique_ptr<Channel> Channel::initiate(UniqueFd fd, const Secret& secret_of_remote) {
  std::unique_ptr<Channel> channel(new Channel(std::move(fd), secret_of_remote, Role::initiator));
  const std::lock_guard lock(channel->mutex_);
  channel->append(channel->exchange_.prologue());
  channel->flush();
  return channel;
}

std::unique_ptr<Channel> Channel::accept(UniqueFd fd, const Secret& own_secret) {
  return std::unique_ptr<Channel>(new Channel(std::move(fd), own_secret, Role::acceptor));
}

Channel::Channel(UniqueFd fd, const Secret& secret, Role role)
    : fd_(std::move(fd)), role_(role), exchange_(secret, role) {}

Channel::~Channel() { forget_waiting(); }

bool Channel::wants_write() const {
  const std::lock_guard lock(mutex_);
  return !failure_ && write_error_ == 0 && out_begin_ < out_.size();
}

bool Channel::progress(const Sink& sink) {
  try {
    consume(sink);  // parts left over after an exception of the sink
    bool drained = false;
    for (int i = 0; i < kReadsPerProgress && !drained; ++i) drained = !read_some(sink);
    const std::lock_guard lock(mutex_);
    flush();
    // Only now: the final messages of a peer that has left may have been waiting in the socket.
    if (drained && write_error_ != 0) end(broken(write_error_));
  } catch (const ProtocolError& error) {
    fail({Kind::protocol, error.what(), error.code()});
  } catch (const AuthenticationError& error) {
    fail({Kind::authentication, error.what(), error.code()});
  } catch (const PeerLost& error) {
    fail({Kind::lost, error.what(), error.code()});
  }
  if (state() != State::closed) return true;
  in_ = {};
  in_begin_ = 0;
  return false;
}

// False when there is nothing more to read for now.
bool Channel::read_some(const Sink& sink) {
  if (state() == State::closed) return false;
  std::array<std::byte, kReadBytes> buffer;
  const ssize_t got = ::recv(fd_.get(), buffer.data(), buffer.size(), MSG_DONTWAIT);
  if (got < 0 && errno == EINTR) return true;
  if (got < 0 && (errno == EAGAIN || errno == EWOULDBLOCK)) return false;
  if (got < 0) {
    fail(broken(errno));
  } else if (got == 0) {
    end_of_stream();
  } else {
    in_.insert(in_.end(), buffer.begin(), buffer.begin() + got);
    consume(sink);
  }
  return true;
}

void Channel::end_of_stream() {
  const std::lock_guard lock(mutex_);
  // A failed write consumes the socket's error; recv then sees what looks like an orderly end.
  if (write_error_ != 0 && write_error_ != EPIPE) return end(broken(write_error_));
  const char* when = state() == State::handshaking
                         ? " during the handshake; check that the address is current"
                     : in_begin_ == in_.size() ? "; its process ended or closed its endpoint"
                                               : " in the middle of a message; its process died";
  end({Kind::lost, std::string("the other side closed the control connection") + when});
}

// Consumes the complete parts received so far. A part counts as consumed before it is passed to the
// sink, so that an exception of the sink leaves the stream intact.
void Channel::consume(const Sink& sink) {
  while (state() != State::closed) {
    const std::span<const std::byte> received = std::span(in_).subspan(in_begin_);
    const std::size_t nbytes = next_part_nbytes(received);
    if (received.size() < nbytes) break;
    in_begin_ += nbytes;
    on_part(received.first(nbytes), sink);
  }
  discard(in_, in_begin_);
}

// The size of the part at the start of `received`, as far as it is known yet.
std::size_t Channel::next_part_nbytes(std::span<const std::byte> received) const {
  if (stage_ == Stage::prologue) return sizeof(Prologue);
  if (stage_ == Stage::proof) return kProofBytes;
  if (received.size() < kLengthBytes) return kLengthBytes;
  // Not authenticated yet, so trusted only within its limits.
  const std::size_t sealed =
      WireReader(received.first(kLengthBytes), "frame length").number<std::uint32_t>();
  if (sealed < kFrameOverhead || sealed > kMaxFrame) {
    throw ProtocolError("the other side announced a control frame of " + std::to_string(sealed) +
                        " bytes, which no endpoint sends; the connection was altered on the way");
  }
  return kLengthBytes + sealed;
}

void Channel::on_part(std::span<const std::byte> part, const Sink& sink) {
  switch (stage_) {
    case Stage::prologue: return on_prologue(part);
    case Stage::proof: return on_proof(part);
    case Stage::frames: return on_frame(part, sink);
  }
}

void Channel::on_prologue(std::span<const std::byte> prologue) {
  const std::lock_guard lock(mutex_);
  if (role_ == Role::acceptor && is_prologue(prologue)) {
    // Send before checking the version: the initiator then learns which version this side speaks.
    append(exchange_.prologue());
    flush();
  }
  exchange_.derive(prologue, keys_);
  std::ranges::copy(prologue, their_prologue_.begin());
  exchange_.wipe();
  encryptor_.emplace(keys_.send);
  append(encryptor_->header());
  encryptor_->append_frame({}, out_);
  flush();
  stage_ = Stage::proof;
}

void Channel::on_proof(std::span<const std::byte> proof) {
  decryptor_.emplace(keys_.receive, proof.first<kHeaderBytes>());
  keys_.wipe();
  if (!decryptor_->open_frame(proof.subspan(kHeaderBytes))) {
    throw AuthenticationError(
        "the other side does not know the secret of this address; get a fresh address, it may have "
        "been restarted");
  }
  const std::lock_guard lock(mutex_);
  if (failure_) return;
  stage_ = Stage::frames;
  state_.store(State::open, std::memory_order_release);
  for (const std::vector<std::byte>& message : waiting_) encryptor_->append_frame(message, out_);
  forget_waiting();
  flush();
}

void Channel::on_frame(std::span<const std::byte> frame, const Sink& sink) {
  std::optional<std::vector<std::byte>> message = decryptor_->open_frame(frame);
  if (!message) {
    throw ProtocolError(
        "a control frame is not the next one that the other side sent; it was altered, repeated or "
        "lost on the way");
  }
  sink(*message);
}

void Channel::send(std::span<const std::byte> message) {
  if (message.size() > kMaxMessage) {
    throw ProtocolError("a control message of " + std::to_string(message.size()) +
                        " bytes is too long: the limit is " + std::to_string(kMaxMessage));
  }
  const std::lock_guard lock(mutex_);
  if (failure_) failure_->raise();
  const std::size_t nbytes = kLengthBytes + message.size() + kFrameOverhead;
  if (out_.size() - out_begin_ + waiting_nbytes_ + nbytes > kMaxQueued) {
    end({Kind::lost, "the other side does not read: " + std::to_string(kMaxQueued) +
                         " bytes of control messages wait for it; its process hangs"});
    failure_->raise();
  }
  if (state() == State::open) {
    encryptor_->append_frame(message, out_);
    flush();
  } else {
    waiting_.emplace_back(message.begin(), message.end());
    waiting_nbytes_ += nbytes;
  }
}

void Channel::append(std::span<const std::byte> bytes) {
  out_.insert(out_.end(), bytes.begin(), bytes.end());
}

// Write errors are only recorded. progress() ends the channel once it has read what the peer sent.
void Channel::flush() {
  while (write_error_ == 0 && out_begin_ < out_.size()) {
    const ssize_t sent = ::send(fd_.get(), out_.data() + out_begin_, out_.size() - out_begin_,
                                MSG_DONTWAIT | MSG_NOSIGNAL);
    if (sent >= 0) {
      out_begin_ += static_cast<std::size_t>(sent);
    } else if (errno == EAGAIN || errno == EWOULDBLOCK) {
      break;
    } else if (errno != EINTR) {
      write_error_ = errno;
      out_begin_ = out_.size();
    }
  }
  discard(out_, out_begin_);
}

void Channel::close(const std::string& reason) { fail({Kind::lost, reason}); }

std::optional<ChannelFailure> Channel::failure() const {
  const std::lock_guard lock(mutex_);
  return failure_;
}

void Channel::fail(ChannelFailure failure) {
  const std::lock_guard lock(mutex_);
  end(std::move(failure));
}

void Channel::end(ChannelFailure failure) {
  if (failure_) return;
  failure_ = std::move(failure);
  state_.store(State::closed, std::memory_order_release);
  // Wakes the thread that polls the descriptor; it stays open so that its number is not reused
  // under that thread.
  (void)::shutdown(fd_.get(), SHUT_RDWR);
  out_ = {};
  out_begin_ = 0;
  forget_waiting();
}

void Channel::forget_waiting() {
  for (std::vector<std::byte>& message : waiting_) {
    sodium_memzero(message.data(), message.size());
  }
  waiting_ = {};
  waiting_nbytes_ = 0;
}

}  // namespace zerohop::engine
