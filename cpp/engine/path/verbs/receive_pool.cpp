#include "engine/path/verbs/receive_pool.hpp"

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <string>
#include <utility>

#include "base/error.hpp"
#include "base/report.hpp"

namespace zerohop::engine {
namespace {

std::uint32_t most_messages(const MessageWindow& window, const rdma::Device& device) {
  const auto limit = static_cast<std::uint32_t>(std::max(device.attributes().max_srq_wr, 0));
  if (limit == 0) {
    throw VerbsError("device " + device.name() +
                     " has no shared receive queues (max_srq_wr is 0), which zerohop needs: use a "
                     "newer driver or another device");
  }
  if (window.receive_slots() > limit) {
    throw VerbsError("message_slots is " + std::to_string(window.slots) +
                     ", and a receive queue "
                     "of device " +
                     device.name() + " takes " + std::to_string(limit) +
                     " (max_srq_wr): give fewer");
  }
  const std::uint32_t most = device.is_iwarp() ? ReceivePool::kMostUnshared : ReceivePool::kMost;
  return std::min(std::max(most, window.receive_slots()), limit);
}

}  // namespace

std::shared_ptr<ReceivePool> ReceivePool::create(const Rail& rail, const MessageWindow& window,
                                                 Poller& poller) {
  const std::uint32_t most = most_messages(window, rail.device());
  const std::shared_ptr<ReceivePool> pool(new ReceivePool(rail, window, most));
  poller.attach_pool(rail.index(), pool, static_cast<int>(most));
  return pool;
}

ReceivePool::ReceivePool(const Rail& rail, const MessageWindow& window, std::uint32_t most)
    : window_(window),
      blocks_count_(most / window.receive_slots()),
      domain_(rail.domain()),
      queue_(rdma::SharedReceiveQueue::create(domain_, most)),
      blocks_(std::make_unique<Block[]>(blocks_count_)) {
  if (!rail.is_iwarp()) return;
  word_ = std::make_unique<std::byte>();
  word_region_ = rdma::MemoryRegion::create(domain_, word_.get(), 1, IBV_ACCESS_REMOTE_READ);
}

rdma::ManagedEnd ReceivePool::word() const noexcept {
  if (!word_region_) return {};
  return {.word_key = word_region_->rkey(), .word = reinterpret_cast<std::uint64_t>(word_.get())};
}

std::shared_ptr<ReceivePool> ReceivePool::join(const std::shared_ptr<ReceivePool>& pool) {
  const std::uint32_t index = pool->joined_.fetch_add(1, std::memory_order_relaxed);
  std::shared_ptr<ReceivePool> joined(
      pool.get(), [pool](ReceivePool*) { pool->joined_.fetch_sub(1, std::memory_order_relaxed); });
  if (index < pool->blocks_count_) {
    pool->add_block(index);
  } else if (const rdma::Device& device = pool->domain_->device(); device.is_iwarp()) {
    throw VerbsError("device " + device.name() + " takes messages of " +
                         std::to_string(pool->blocks_count_) +
                         " Peers, as iWARP cannot delay their senders: close one, or give fewer "
                         "message_slots",
                     ENOBUFS);
  }
  return joined;
}

void ReceivePool::add_block(std::uint32_t index) {
  Block& block = blocks_[index];
  if (block.there.exchange(true)) return;
  const std::uint32_t count = window_.receive_slots();
  try {
    block.buffers = std::make_unique<MessageBuffers>(count, window_.slot_nbytes());
    block.buffers->add_device(domain_);
  } catch (...) {
    block.there.store(false);
    throw;
  }
  nbytes_.fetch_add(block.buffers->nbytes(), std::memory_order_relaxed);
  for (std::uint32_t i = 0; i < count; ++i) post(kReceiveBit | (index * count + i));
}

std::span<std::byte> ReceivePool::buffer(std::uint64_t wr_id) const noexcept {
  const auto i = static_cast<std::uint32_t>(wr_id & ~kReceiveBit);
  const std::uint32_t each = window_.receive_slots();
  return blocks_[i / each].buffers->buffer(i % each);
}

void ReceivePool::post(std::uint64_t wr_id) noexcept {
  const auto block = static_cast<std::uint32_t>(wr_id & ~kReceiveBit) / window_.receive_slots();
  ibv_sge element{.addr = reinterpret_cast<std::uint64_t>(buffer(wr_id).data()),
                  .length = window_.slot_nbytes(),
                  .lkey = blocks_[block].buffers->lkey(0)};
  ibv_recv_wr request{};
  request.wr_id = wr_id;
  request.sg_list = &element;
  request.num_sge = 1;
  ibv_recv_wr* bad = nullptr;
  if (const int error = queue_->post(request, &bad); error != 0) {
    report({"a buffer for messages is lost: ibv_post_srq_recv failed: ", ::strerror(error)});
  }
}

void ReceivePool::on_completion(const ibv_wc& completion) noexcept {
  if (is_receive(completion)) post(completion.wr_id);
}

void ReceivePool::release() noexcept {
  for (std::uint32_t i = 0; i < blocks_count_; ++i) {
    if (blocks_[i].buffers) blocks_[i].buffers->deregister();
  }
  word_region_.reset();
  queue_.reset();
  domain_.reset();
}

}  // namespace zerohop::engine
