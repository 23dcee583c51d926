// The way to a peer over a queue pair: everything that is posted to it and everything it completes.
//
// Jobs are posted in the order they come. What the queue has no room for waits in line, and goes
// out as completions make room. Small messages (notifications, send and recv) travel in order
// behind the data; the receiver's slots are never overrun, because it tells how many it has
// emptied.
#pragma once

#include <array>
#include <atomic>
#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <mutex>
#include <span>
#include <string>
#include <unordered_map>
#include <vector>

#include "base/error.hpp"
#include "engine/board.hpp"
#include "engine/job.hpp"
#include "engine/matcher.hpp"
#include "engine/path_buffers.hpp"
#include "engine/path_stats.hpp"
#include "engine/send_queue.hpp"
#include "engine/settings.hpp"
#include "rdma/queue_pair.hpp"

namespace zerohop::engine {

// What one end must know of the other; crosses the wire in Hello and Requeue.
struct PathTerms {
  rdma::QueuePairAddress queue_pair;
  std::uint32_t receive_slots = 0;
  std::uint32_t slot_nbytes = 0;
};

// What all paths of an Endpoint share.
struct PathServices {
  std::shared_ptr<rdma::ProtectionDomain> domain;
  std::shared_ptr<Poller> poller;
  std::shared_ptr<Board> board;
  rdma::QueuePairOptions options;
};

class VerbsPath final : public CompletionSink, public std::enable_shared_from_this<VerbsPath> {
 public:
  // on_broken is called, from whatever thread polls, when the queue pair is in error and every
  // posted work request has been given back: renew() may follow. It must only pass the word on.
  static std::shared_ptr<VerbsPath> create(PathServices services, std::string peer_name,
                                           std::function<void()> on_broken);
  ~VerbsPath() override;

  PathTerms terms() const;  // of this end
  // Throws ProtocolError for terms that no correct peer offers, VerbsError when the device refuses.
  void connect(const PathTerms& remote);

  // Puts the queue pair in error, as if the device had: on_broken follows.
  void abandon(const std::string& cause);
  // connect() to the fresh queue pair of the same peer.
  void reconnect(const rdma::QueuePairAddress& remote);

  // Replaces the queue pair by a fresh, unconnected one; jobs submitted from now on wait for
  // connect().
  void renew();

  // Fails all that is pending and all that follows with what `reason` makes. No memory of a
  // transfer is touched any more when this returns. Idempotent.
  using Reason = std::function<Failure(Effect)>;
  void close(Reason reason);

  // Posts the job, or queues it; its Transfer is done when everything of it has completed. When
  // many jobs wait already, so does the caller, until `deadline` at most. Throws the close()
  // reason.
  void submit(Job&& job, const Deadline& deadline);
  // Offers memory to the peer's recv: `transfer` is done when the peer has read it.
  void offer(std::shared_ptr<Transfer> transfer, const Message& message, const Deadline& deadline);
  void receive(PostedReceive receive);

  std::uint32_t eager_limit() const noexcept;  // bytes of payload that travel inside a message
  bool idle() const;                           // nothing posted, nothing waiting to be
  Settings settings() const;                   // none once closed
  const rdma::Device& device() const noexcept { return services_.domain->device(); }
  PathStats& stats() noexcept { return stats_; }
  const std::shared_ptr<Poller>& poller() const noexcept { return services_.poller; }

  void on_completion(const ibv_wc& completion) noexcept override;

 private:
  enum class State { unconnected, up, broken, closed };
  static constexpr std::uint64_t kReceiveBit = std::uint64_t{1} << 63;  // in wr_id; else a ticket

  VerbsPath(PathServices services, std::string peer_name, std::function<void()> on_broken);
  std::unique_ptr<rdma::QueuePair> make_queue_pair();
  int completions() const noexcept;

  void enqueue(Job&& job);
  void advance_jobs();
  bool advance(Job& job);
  bool message_allowed(const Job& job) const noexcept;
  void add_message(WorkChain& chain, Job& job, PostedChain& posted);
  void post(WorkChain& chain, PostedChain&& posted);
  void return_credits();
  void post_receive_slot(rdma::QueuePair& queue_pair, std::uint32_t slot);

  void on_post_refused(int error);
  void retire(std::uint64_t ticket);
  void on_error(const ibv_wc& completion);
  void break_down(const std::string& cause, bool flushed_untouched, bool peer_may_be_gone);
  void fail_chains(std::uint64_t last_ticket, ibv_wc_status status);
  void cut_off(const std::shared_ptr<Transfer>& transfer, Effect effect, int code);
  void cut_off_jobs();
  void decide();
  void report_if_drained();

  void on_receive(const ibv_wc& completion);
  void on_credits(std::uint32_t more);
  void on_message(std::uint32_t slot, std::uint32_t nbytes);
  void handle(const Message& message, std::span<const std::byte> payload);
  void on_data_message(const Message& message, std::span<const std::byte> payload);
  void on_taken(std::uint32_t id);
  void deliver(PostedReceive& receive, const Message& message, std::span<const std::byte> payload);
  void release_held_slots();

  const PathServices services_;
  const std::string peer_name_;
  const std::function<void()> on_broken_;
  PathBuffers buffers_;
  PathStats stats_;

  mutable std::mutex mutex_;  // guards all below; taken after the poller's, before a Transfer's
  std::unique_ptr<rdma::QueuePair> queue_pair_;
  State state_ = State::unconnected;
  Reason close_reason_;
  PathTerms remote_;
  JobLimits limits_;
  std::uint32_t mtu_nbytes_ = 0;  // of a packet, as both ends agreed
  SendQueue send_queue_;
  std::deque<Job> jobs_;
  std::atomic<std::size_t> jobs_waiting_{0};

  // Credits: how many messages went out, how many of them the peer has taken out of its slots, how
  // many of the peer's this end has taken, and how many of those the peer knows of. They wrap.
  std::uint32_t messages_sent_ = 0;
  std::uint32_t messages_taken_by_peer_ = 0;
  std::uint32_t messages_taken_ = 0;
  std::uint32_t messages_reported_ = 0;
  std::uint32_t send_slots_used_ = 0;
  std::uint32_t next_send_slot_ = 0;
  std::array<std::byte, 64> inline_message_{};  // alive until posted: inline data is copied then

  Matcher matcher_;
  std::vector<std::uint32_t> held_slots_;  // not posted again while too much waits for a recv
  std::unordered_map<std::uint32_t, std::shared_ptr<Transfer>> offers_;
  std::uint32_t next_offer_ = 1;

  // Transfers cut off by a lost connection: PeerLost if the peer is gone, else a VerbsError. The
  // control connection decides.
  struct Undecided {
    std::shared_ptr<Transfer> transfer;
    Effect effect;
    int code;  // ibv_wc_status
  };
  std::vector<Undecided> undecided_;
  std::string break_cause_;         // of the present break-down, for those flushed with it
  bool peer_may_be_gone_ = false;   // ... whether it may be the end of the peer that caused it
  bool flushed_untouched_ = false;  // ... whether flushed requests surely never ran
  bool break_reported_ = false;
};

}  // namespace zerohop::engine
