// Pending questions to a peer, by the number that its answers carry.
#pragma once

#include <cstdint>
#include <memory>
#include <mutex>
#include <unordered_map>
#include <vector>

#include "base/locks.hpp"

namespace zerohop::engine {

// Thread-safe.
template <typename Answer>
class Questions {
 public:
  // A question whose answer a caller waits for: this object forgets it, however the wait ends.
  class Asked {
   public:
    explicit Asked(Questions& all) : all_(all), number_(all.add(answer_)) {}
    ~Asked() { all_.forget(number_); }
    Asked(const Asked&) = delete;
    Asked& operator=(const Asked&) = delete;

    std::uint64_t number() const noexcept { return number_; }
    Answer& answer() const noexcept { return *answer_; }

   private:
    Questions& all_;
    const std::shared_ptr<Answer> answer_ = std::make_shared<Answer>();
    const std::uint64_t number_;
  };

  // Null: no caller waits for it any more.
  std::shared_ptr<Answer> find(std::uint64_t number) const {
    const std::lock_guard lock(mutex_);
    const auto found = answers_.find(number);
    return found == answers_.end() ? nullptr : found->second;
  }
  // All questions with a waiting caller.
  std::vector<std::shared_ptr<Answer>> all() const {
    const std::lock_guard lock(mutex_);
    std::vector<std::shared_ptr<Answer>> all;
    for (const auto& [number, answer] : answers_) all.push_back(answer);
    return all;
  }
  std::size_t size() const {
    const std::lock_guard lock(mutex_);
    return answers_.size();
  }

 private:
  std::uint64_t add(const std::shared_ptr<Answer>& answer) {
    const std::lock_guard lock(mutex_);
    answers_.emplace(next_, answer);
    return next_++;
  }
  void forget(std::uint64_t number) noexcept {
    const std::lock_guard lock(mutex_);
    answers_.erase(number);
  }

  mutable Mutex<Rank::peer> mutex_;  // guards all members below
  std::uint64_t next_ = 1;
  std::unordered_map<std::uint64_t, std::shared_ptr<Answer>> answers_;
};

}  // namespace zerohop::engine
