// Registered memory for outgoing messages, for all Peers of an Endpoint.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <utility>
#include <vector>

#include "base/fork.hpp"
#include "base/locks.hpp"
#include "engine/path/verbs/message_buffers.hpp"
#include "engine/rail.hpp"

namespace zerohop::engine {

class SendPool;

// One buffer with room for a Message and its payload. It returns to the pool once the message has
// been sent.
class SendBuffer {
 public:
  SendBuffer() = default;  // none
  SendBuffer(SendBuffer&& other) noexcept
      : pool_(std::move(other.pool_)),
        bytes_(std::exchange(other.bytes_, {})),
        index_(other.index_),
        nbytes_(std::exchange(other.nbytes_, 0)) {}
  SendBuffer& operator=(SendBuffer&& other) noexcept {
    if (pool_) give_back();
    pool_ = std::move(other.pool_);
    bytes_ = std::exchange(other.bytes_, {});
    index_ = other.index_;
    nbytes_ = std::exchange(other.nbytes_, 0);
    return *this;
  }
  ~SendBuffer() {
    if (pool_) give_back();
  }

  explicit operator bool() const noexcept { return pool_ != nullptr; }
  std::span<std::byte> payload() const noexcept {
    return nbytes_ == 0 ? std::span<std::byte>() : bytes_.subspan(sizeof(Message), nbytes_);
  }
  void append(std::span<const std::byte> more) noexcept;       // to the payload; must fit
  std::byte* begin() const noexcept { return bytes_.data(); }  // of the Message
  std::uint32_t lkey(RailIndex rail) const noexcept;

 private:
  friend class SendPool;
  void give_back() noexcept;
  SendBuffer(std::shared_ptr<SendPool> pool, std::span<std::byte> bytes, std::uint32_t index,
             std::size_t nbytes) noexcept
      : pool_(std::move(pool)), bytes_(bytes), index_(index), nbytes_(nbytes) {}

  std::shared_ptr<SendPool> pool_;
  std::span<std::byte> bytes_;
  std::uint32_t index_ = 0;
  std::size_t nbytes_ = 0;  // of payload
};

class SendPool : public std::enable_shared_from_this<SendPool> {
 public:
  SendPool(Rails rails, std::uint32_t payload_nbytes)
      : rails_(std::move(rails)), payload_nbytes_(payload_nbytes) {}

  // For a payload of that size. Grows if all buffers are in use, at most to the number of messages
  // queued and in flight. Throws RegistrationError.
  SendBuffer take(std::size_t nbytes);

  std::size_t nbytes() const;  // registered
  void release() noexcept;     // after the Endpoint is closed: releases the devices

 private:
  friend class SendBuffer;
  static constexpr std::uint32_t kBlock = 16;  // buffers

  std::uint32_t lkey(std::uint32_t index, RailIndex rail) const noexcept;
  void give_back(std::uint32_t index) noexcept;
  void grow();

  const Rails rails_;
  const std::uint32_t payload_nbytes_;  // at most
  const unsigned generation_ = fork_generation();
  mutable Mutex<Rank::send_pool> mutex_;  // guards all below
  bool closed_ = false;
  std::vector<std::unique_ptr<MessageBuffers>> blocks_;
  std::vector<std::uint32_t> free_;  // last used first; has room for all
};

}  // namespace zerohop::engine
