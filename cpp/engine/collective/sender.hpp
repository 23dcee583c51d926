// Sends messages and blocks over lines, and waits for what it has posted.
#pragma once

#include <memory>
#include <optional>
#include <span>
#include <utility>

#include "engine/collective/block_writes.hpp"
#include "engine/collective/lines.hpp"
#include "engine/collective/run_limits.hpp"

namespace zerohop::engine::collective {

// Throws what a Transfer, or posting one, throws: then culprit() is the rank concerned.
class Sender {
 public:
  // A transfer that has not ended in time; null: there is none.
  struct UnderWay {
    std::shared_ptr<Transfer> transfer{};
    Rank rank = 0;  // to which it goes
    explicit operator bool() const noexcept { return transfer != nullptr; }
  };

  explicit Sender(std::shared_ptr<Lines> lines) : lines_(std::move(lines)) {}

  std::optional<Rank> culprit() const noexcept { return culprit_; }
  // Throws the error of a failed transfer.
  void look(Line& line) {
    culprit_ = line.rank();
    line.look();
    culprit_.reset();
  }
  // As Line::put(), after a look.
  bool put(Line& line, const Header& header, std::span<const std::byte> payload) {
    culprit_ = line.rank();
    line.look();
    const bool done = line.put(header, payload);
    culprit_.reset();
    return done;
  }
  // After put() was not possible. If a transfer is under way, nothing has been sent.
  UnderWay send(Line& line, const Header& header, std::span<const std::byte> payload,
                const RunLimits& limits);
  // Posts a part of the current block. True: it was the last part.
  bool write_part(BlockWrites& writes, const RunLimits& limits);
  // Waits until blocks sent over the line may change, and what is checked has succeeded.
  UnderWay settle(Line& line, const RunLimits& limits);

 private:
  UnderWay await(Line& line, const std::shared_ptr<Transfer>& transfer, const RunLimits& limits);
  UnderWay await_checked(Line& line, const RunLimits& limits);

  const std::shared_ptr<Lines> lines_;
  std::optional<Rank> culprit_;
};

}  // namespace zerohop::engine::collective
