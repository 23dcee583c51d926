// GPU memory of an Endpoint that none of its adapters reaches. Peers name it by a separate key, and
// the Endpoint copies to and from it for them (the staged route).
#pragma once

#include <atomic>
#include <cstdint>
#include <map>
#include <memory>

#include "base/deadline.hpp"
#include "base/layout.hpp"
#include "base/locks.hpp"

namespace zerohop::engine {

struct Registration;

class StagedMemories : public std::enable_shared_from_this<StagedMemories> {
 public:
  // The right of peers to one range; ends with this object.
  class Right {
   public:
    Right(std::shared_ptr<StagedMemories> of, std::uint64_t key, const Extent& extent,
          bool writable)
        : of_(std::move(of)), key_(key), extent_(extent), writable_(writable) {}
    ~Right();
    void end() const noexcept;  // revokes the right
    // Waits for copies that started before. False: some still run at the deadline.
    bool await(const Deadline& deadline) const noexcept;
    Right(const Right&) = delete;
    Right& operator=(const Right&) = delete;

    std::uint64_t key() const noexcept { return key_; }  // never 0
    const Extent& extent() const noexcept { return extent_; }
    bool writable() const noexcept { return writable_; }

   private:
    friend class StagedMemories;
    const std::shared_ptr<StagedMemories> of_;
    const std::uint64_t key_;  // random: cannot be guessed
    const Extent extent_;
    const bool writable_;
    const std::shared_ptr<std::atomic<int>> borrowed_ = std::make_shared<std::atomic<int>>(0);
  };

  std::shared_ptr<const Right> open(const Extent& extent, bool writable);
  // Sets the memory that the key opens.
  void bind(const Right& right, const std::shared_ptr<const Registration>& memory);

  // Checks the key, the range and the right. Null: the peer has no such right. It does not keep the
  // memory for a copy: borrow() does.
  std::shared_ptr<const Registration> find(std::uint64_t key, const Extent& extent,
                                           bool writes) const;
  // ... for one copy to or from it; closing the right waits for that copy.
  std::shared_ptr<const Registration> borrow(std::uint64_t key) const;

 private:
  struct Entry {
    Extent extent;
    bool writable;
    std::weak_ptr<const Registration> memory;
    std::shared_ptr<std::atomic<int>> borrowed;  // number of running copies
  };
  mutable Mutex<Rank::staged_memories> mutex_;
  std::map<std::uint64_t, Entry> entries_;
};

}  // namespace zerohop::engine
