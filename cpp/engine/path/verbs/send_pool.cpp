#include "engine/path/verbs/send_pool.hpp"

#include <algorithm>
#include <mutex>

#include "base/error.hpp"
#include "base/fork.hpp"

namespace zerohop::engine {

void SendBuffer::give_back() noexcept { pool_->give_back(index_); }

void SendBuffer::append(std::span<const std::byte> more) noexcept {
  std::ranges::copy(more, bytes_.begin() + static_cast<std::ptrdiff_t>(sizeof(Message) + nbytes_));
  nbytes_ += more.size();
}

std::uint32_t SendBuffer::lkey(RailIndex rail) const noexcept { return pool_->lkey(index_, rail); }

SendBuffer SendPool::take(std::size_t nbytes) {
  for (;;) {
    {
      const std::lock_guard lock(mutex_);
      if (!free_.empty()) {
        const std::uint32_t index = free_.back();
        free_.pop_back();
        return {shared_from_this(), blocks_[index / kBlock]->buffer(index % kBlock), index, nbytes};
      }
    }
    grow();
  }
}

// Registers with the devices without the lock.
void SendPool::grow() {
  auto block = std::make_unique<MessageBuffers>(kBlock, sizeof(Message) + payload_nbytes_);
  for (const auto& rail : rails_) block->add_device(rail->gone() ? nullptr : rail->domain());
  const std::lock_guard lock(mutex_);
  if (closed_) throw Error("this Endpoint is closed: make a new one");
  const auto first = static_cast<std::uint32_t>(blocks_.size()) * kBlock;
  free_.reserve(first + kBlock);
  blocks_.push_back(std::move(block));
  for (std::uint32_t i = 0; i < kBlock; ++i) free_.push_back(first + i);
}

std::uint32_t SendPool::lkey(std::uint32_t index, RailIndex rail) const noexcept {
  const std::lock_guard lock(mutex_);
  return blocks_[index / kBlock]->lkey(rail);
}

void SendPool::give_back(std::uint32_t index) noexcept {
  if (generation_ != fork_generation()) return;  // in a child the lock may stay taken
  const std::lock_guard lock(mutex_);
  free_.push_back(index);
}

std::size_t SendPool::nbytes() const {
  const std::lock_guard lock(mutex_);
  return blocks_.empty() ? 0 : blocks_.size() * blocks_.front()->nbytes();
}

void SendPool::release() noexcept {
  const std::lock_guard lock(mutex_);
  closed_ = true;
  for (const auto& block : blocks_) block->deregister();
}

}  // namespace zerohop::engine
