// The registered memory of an Endpoint, by the keys that peers have: what they may ask about, as
// long as it is registered.
#pragma once

#include <cstdint>
#include <memory>
#include <set>
#include <unordered_map>
#include <utility>

#include "base/fork.hpp"
#include "base/layout.hpp"
#include "base/locks.hpp"
#include "engine/memory/regions.hpp"
#include "engine/memory/remote_memory.hpp"
#include "engine/rail.hpp"
#include "gpu/device.hpp"

namespace zerohop::engine {

class OwnMemories : public std::enable_shared_from_this<OwnMemories> {
 public:
  // Memory in use by a query: keeps the memory, but not its registration.
  struct Held {
    std::shared_ptr<const void> owner;          // null: nothing to hold
    std::shared_ptr<const gpu::Device> device;  // null: host memory
  };
  // Keeps an entry; held by registered memory.
  class Entry {
   public:
    Entry(std::shared_ptr<OwnMemories> of, std::uint64_t number)
        : of_(std::move(of)), number_(number) {}
    ~Entry() { of_->remove(number_); }
    Entry(const Entry&) = delete;
    Entry& operator=(const Entry&) = delete;

   private:
    const std::shared_ptr<OwnMemories> of_;
    const std::uint64_t number_;
  };
  // regions: null for an empty array, which is never looked up.
  std::shared_ptr<const Entry> add(const Regions* regions, const std::shared_ptr<void>& owner,
                                   std::shared_ptr<const gpu::Device> device);

  // The memory named. Throws RegistrationError unless one of the keys belongs to memory that is
  // registered now and covers all elements: then a device would serve it as well.
  Held find(const RemoteMemory& named) const;

 private:
  struct Known {
    RailKeys rkeys{};
    std::uint64_t staged_key = 0;
    Extent covered;
    std::weak_ptr<const void> owner;
    std::shared_ptr<const gpu::Device> device;
  };
  void remove(std::uint64_t number);

  const unsigned generation_ = fork_generation();  // of the process
  mutable Mutex<Rank::own_memories> mutex_;        // guards all members below
  std::uint64_t last_ = 0;
  std::unordered_map<std::uint64_t, Known> known_;            // by number
  std::set<std::pair<std::uint64_t, std::uint64_t>> by_key_;  // any of its keys, and the number
};

}  // namespace zerohop::engine
