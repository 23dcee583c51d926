// The checked transfers with one Peer (integrity=1), in the order of the calls.
//
// When the bytes of a transfer have been moved, each end computes checksums (CRC32C) of its own
// array, and the initiator compares: it asks the peer on the control connection (SumUp). Then the
// notification is sent, after earlier ones except those in other streams of the program. So no
// notification covers bytes that were not compared, and after a mismatch no notification requested
// meanwhile is sent.
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <list>
#include <memory>
#include <optional>
#include <string>
#include <unordered_map>
#include <vector>

#include "base/locks.hpp"
#include "engine/channel/control_message.hpp"
#include "engine/integrity/checker.hpp"
#include "engine/memory/memory.hpp"
#include "engine/wait/transfer.hpp"

namespace zerohop::engine {

std::string checksum_text(std::uint32_t sum);  // 8 hexadecimal digits

class CheckLine : public std::enable_shared_from_this<CheckLine> {
 public:
  struct Services {
    std::shared_ptr<Poller> poller;
    std::shared_ptr<Checker> checker;
    std::string peer;                       // its name, for messages
    std::function<void(SumUp)> ask;         // the peer
    std::function<std::string()> why_lost;  // once it is lost
  };
  explicit CheckLine(Services services) : services_(std::move(services)) {}

  struct Pair {
    SummedPart here;  // all of it
    std::shared_ptr<const Registration> registration;
    RemoteMemory there;
  };
  using Pairs = std::vector<Pair>;
  // Sends the notification. Null: none. Does not wait for room; may throw.
  using Notify = std::function<std::shared_ptr<Transfer>()>;

  struct Call {
    const char* verb = "write";
    std::shared_ptr<Transfer> moved{};  // null: there is nothing to move
    Pairs pairs{};
    Notify notify{};
    std::optional<driver::CudaStream> stream{};  // of the program; orders the notification
  };
  // Done when everything is moved and compared, and the notification is sent.
  std::shared_ptr<Transfer> put(Call call, std::shared_ptr<const Route> route);

  // --- for the progress thread ---
  void on_answer(const SummedUp& answer);
  // The peer is lost, with the reason of why_lost().
  void end();

  bool pending() const noexcept { return pending_.load(std::memory_order_acquire) > 0; }

 private:
  struct Check;
  using Line = std::list<std::shared_ptr<Check>>;
  struct Check {
    Call call;
    Line::iterator place{};
    std::shared_ptr<Transfer> transfer;  // the caller's
    std::size_t next_pair = 0;           // next to ask about,
    std::uint64_t next_byte = 0;         // ... from that byte on
    unsigned asked = 0;                  // questions without a verdict
    bool summing = false;                // on the Checker's thread
    bool moved = false;
    bool settled = false;             // compared, or failed
    bool ended = false;               // and nothing is left to notify
    std::optional<Failure> failure;   // of this check itself
    std::optional<Failure> withheld;  // of its notification, because an earlier check failed
    bool all_asked() const noexcept { return next_pair == call.pairs.size() || failure; }
    bool notifies() const noexcept { return call.notify && !failure && !withheld; }
  };
  struct Part {
    std::size_t pair;
    std::uint64_t first;
    std::uint64_t nbytes;
  };
  using Sums = std::vector<std::uint32_t>;
  struct Question {
    std::shared_ptr<Check> check;
    std::vector<Part> parts;
    std::optional<Sums> here;
    std::optional<Sums> there;
  };

  void on_moved(const std::shared_ptr<Check>& check);
  void advance() noexcept;
  bool ask_next();
  static SumUp cut(Question& question);
  Sums sums_here(const Question& question) const;
  void retire();
  void finish(const std::shared_ptr<Check>& check) noexcept;
  void notify(const std::shared_ptr<Check>& check) noexcept;
  void put_task(Checker::Task task) { services_.checker->put(std::move(task)); }

  // --- call with the lock held ---
  void judge(const Question& question);
  std::optional<Failure> compare(const Question& question) const;
  Failure mismatch(const Question& question, const Part& range, std::uint32_t here,
                   std::uint32_t there) const;
  void settle(const std::shared_ptr<Check>& check, std::optional<Failure> failure);
  void withhold_behind(const Check& failed);
  void end_if_settled(const std::shared_ptr<Check>& check);
  void notify_those_in_turn();
  Failure lost(Effect effect) const;

  const Services services_;
  std::atomic<int> pending_{0};

  Mutex<Rank::check_line> mutex_;  // guards all members below, and the Checks
  Line line_;
  std::vector<std::shared_ptr<Check>> ended_checks_;  // whose Transfers must be ended
  std::list<std::shared_ptr<Check>> to_ask_;
  std::unordered_map<std::uint64_t, std::shared_ptr<Question>> questions_;
  std::uint64_t last_request_ = 0;
  bool ended_ = false;
  std::string why_lost_;
};

}  // namespace zerohop::engine
