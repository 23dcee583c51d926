// Memory published by name.
#pragma once

#include <map>
#include <mutex>
#include <optional>
#include <string>

#include "base/locks.hpp"
#include "engine/memory/memory.hpp"

namespace zerohop::engine {

class Shares {
 public:
  // Replaces any memory of that name. The memory stays registered while it is shared.
  void put(const std::string& name, const Memory& memory) {
    const std::lock_guard lock(mutex_);
    by_name_.insert_or_assign(name, memory);
  }

  // False when no memory had the name.
  bool remove(const std::string& name) {
    const std::lock_guard lock(mutex_);
    return by_name_.erase(name) == 1;
  }
  void clear() {
    const std::lock_guard lock(mutex_);
    by_name_.clear();
  }

  // nullopt when no memory has the name, or it is closed.
  std::optional<RemoteMemory> find(const std::string& name) const {
    const std::lock_guard lock(mutex_);
    const auto found = by_name_.find(name);
    if (found == by_name_.end() || found->second.closed()) return std::nullopt;
    return found->second.remote();
  }

 private:
  mutable Mutex<Rank::shares> mutex_;
  std::map<std::string, Memory> by_name_;
};

}  // namespace zerohop::engine
