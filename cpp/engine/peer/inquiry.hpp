// A look-up of memory that a peer shares, alive as long as a caller waits for the result.
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <utility>

#include "engine/channel/questions.hpp"
#include "engine/done.hpp"
#include "engine/memory/remote_memory.hpp"

namespace zerohop::engine {

class Lookups;

// Any thread.
class Inquiry {
 public:
  // now: the answer that nothing has the name also ends it. Sends the request.
  Inquiry(std::shared_ptr<Lookups> lookups, std::string name, bool now);
  ~Inquiry();
  Inquiry(const Inquiry&) = delete;
  Inquiry& operator=(const Inquiry&) = delete;

  bool done() const noexcept { return asked_->answer().done_.is(); }
  // See Done::on_set() and forget().
  Done::Id on_done(std::function<void()> callback) {
    return asked_->answer().done_.on_set(std::move(callback));
  }
  void forget(Done::Id id) noexcept { asked_->answer().done_.forget(id); }
  // Once it is done. nullopt: nothing has the name. Throws PeerLost.
  std::optional<RemoteMemory> memory() const;
  std::string late() const;  // message for a wait that timed out

  // --- for the progress thread ---
  class Answer {
   public:
    void take(std::optional<RemoteMemory>&& memory);  // nullopt: nothing has the name yet
    void end();                                       // no further answer will come

   private:
    friend class Inquiry;
    bool now_ = false;
    std::atomic<bool> arrived_{false};    // found, or known not to exist yet
    std::optional<RemoteMemory> memory_;  // once done
    Done done_;
  };

 private:
  const std::shared_ptr<Lookups> lookups_;
  const std::string name_;
  std::unique_ptr<Questions<Answer>::Asked> asked_;
};

}  // namespace zerohop::engine
