// Which Transfers the posted work requests belong to. A queue pair completes in the order of
// posting, so the book is a ring: the completion of one entry retires it and all before it.
#pragma once

#include <cstdint>
#include <memory>
#include <new>
#include <vector>

#include "engine/path/verbs/send_pool.hpp"
#include "engine/wait/transfer.hpp"

namespace zerohop::engine {

// One posted chain.
struct PostedChain {
  std::shared_ptr<Transfer> transfer;  // null for the engine's own traffic
  std::uint32_t requests = 0;
  std::uint32_t reads = 0;  // of them
  bool atomic = false;      // its result lies in the result word of this entry
  SendBuffer message{};     // of the message it ends with, if that has one
  bool probe = false;       // that it completes tells that the rail serves again
  std::uint64_t job = 0;    // the number of the job that ends with it; 0: none does
};

class SendQueue {
 public:
  explicit SendQueue(std::uint32_t depth) : depth_(depth), ring_(kFirst) {}

  std::uint32_t depth() const noexcept { return depth_; }
  std::uint32_t room() const noexcept { return depth_ - requests_; }
  std::uint32_t reads() const noexcept { return reads_; }  // outstanding
  bool empty() const noexcept { return head_ == tail_; }
  bool retired_before(std::uint64_t ticket) const noexcept { return head_ >= ticket; }

  // The wr_id of the next chain; its index names the words and slots that belong to the entry.
  std::uint64_t next_ticket() const noexcept { return tail_; }
  std::uint32_t index(std::uint64_t ticket) const noexcept {
    return static_cast<std::uint32_t>(ticket % depth_);
  }

  // Before each push(). False: there is no memory.
  bool make_room() noexcept {
    if (tail_ - head_ < ring_.size()) return true;
    try {
      grow();
    } catch (const std::bad_alloc&) {
      return false;
    }
    return true;
  }
  // Not when room() is less than the requests of the chain.
  void push(PostedChain&& chain) noexcept {
    requests_ += chain.requests;
    reads_ += chain.reads;
    at(tail_) = std::move(chain);
    ++tail_;
  }

  // The job ends with the newest entry. False: there is none.
  bool end_job(std::uint64_t number) noexcept {
    if (empty()) return false;
    at(tail_ - 1).job = number;
    return true;
  }

  // The oldest entry, if its ticket is at most `last`.
  bool pop_until(std::uint64_t last, PostedChain& chain, std::uint64_t& ticket) noexcept {
    if (empty() || head_ > last) return false;
    ticket = head_;
    chain = std::move(at(head_++));
    requests_ -= chain.requests;
    reads_ -= chain.reads;
    return true;
  }
  bool pop(PostedChain& chain) noexcept {
    std::uint64_t ticket = 0;
    return pop_until(tail_, chain, ticket);
  }

 private:
  static constexpr std::size_t kFirst = 8;  // a power of two

  PostedChain& at(std::uint64_t ticket) noexcept { return ring_[ticket & (ring_.size() - 1)]; }
  // Seldom: twice the size each time, and a chain is one request at least.
  void grow() {
    std::vector<PostedChain> larger(2 * ring_.size());
    for (std::uint64_t i = head_; i != tail_; ++i) {
      larger[i & (larger.size() - 1)] = std::move(at(i));
    }
    ring_ = std::move(larger);
  }

  std::uint32_t depth_;
  std::uint32_t requests_ = 0;
  std::uint32_t reads_ = 0;
  std::uint64_t head_ = 0;  // tickets: ever rising
  std::uint64_t tail_ = 0;
  std::vector<PostedChain> ring_;
};

}  // namespace zerohop::engine
