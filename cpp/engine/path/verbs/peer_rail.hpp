// The queue pair with a peer on one rail: everything that is posted to it and everything it
// completes.
//
// Jobs are posted in the order they come. What the queue has no room for waits in line, and goes
// out as completions make room. Small messages (notifications, send and recv) travel in order
// behind the data; the receiver's slots are never overrun, because it tells how many it has
// emptied.
#pragma once

#include <array>
#include <atomic>
#include <cstdint>
#include <functional>
#include <list>
#include <memory>
#include <mutex>
#include <optional>
#include <span>
#include <string>
#include <unordered_map>
#include <vector>

#include "base/error.hpp"
#include "engine/channel/control_message.hpp"
#include "engine/notify/board.hpp"
#include "engine/path/verbs/direct_queue_pair.hpp"
#include "engine/path/verbs/entry_memory.hpp"
#include "engine/path/verbs/job.hpp"
#include "engine/path/verbs/matcher.hpp"
#include "engine/path/verbs/rail_group.hpp"
#include "engine/path/verbs/receive_pool.hpp"
#include "engine/path/verbs/send_queue.hpp"
#include "engine/path/verbs/staged_messages.hpp"
#include "engine/settings.hpp"
#include "engine/stats/rail_stats.hpp"
#include "rdma/queue_pair.hpp"

namespace zerohop::engine {

// What one end must know of the other; crosses the wire in Hello and Requeue.
struct RailTerms {
  rdma::QueuePairAddress queue_pair;
  std::uint32_t receive_slots = 0;
  std::uint32_t slot_nbytes = 0;
};

// What a rail has from its Endpoint: identical for all rails, except `rail`.
struct RailServices {
  std::shared_ptr<Rail> rail;
  std::shared_ptr<Poller> poller;
  std::shared_ptr<Board> board;
  rdma::QueuePairOptions options;
  MessageWindow messages{};
  ReceivePools receives{};
};

class PeerRail final : public CompletionSink, public std::enable_shared_from_this<PeerRail> {
 public:
  // needs_renewal is called, from whatever thread polls, when the queue pair is in error and every
  // posted work request has been given back: renew() may follow. It must only schedule it.
  static std::shared_ptr<PeerRail> create(RailServices services, std::shared_ptr<RailGroup> group,
                                          std::function<void()> needs_renewal);
  ~PeerRail() override;

  RailTerms terms() const;  // of this end
  // Throws ProtocolError for terms that no correct peer offers, VerbsError when the device refuses.
  // By a connection manager it takes longer: this end either dials, or the other one does
  // (peer_rail_connecting.cpp).
  void connect(const RailTerms& remote, bool dials = false);
  void dial_again();        // the connection that it has dialled cannot be made. Throws VerbsError
  bool connecting() const;  // connect() was called, and it is not connected yet
  // Events of the connection manager. accept(): a request that names this queue pair.
  void accept(const std::shared_ptr<rdma::Connection>& connection,
              const rdma::Introduction& introduction);
  void on_established(const rdma::Connection& connection);
  void on_connection_closed(const rdma::Connection& connection);
  void nudge();  // now and then
  bool has(const rdma::Connection& connection) const;

  // Puts the queue pair in error, as if the device had: needs_renewal follows.
  void to_error(const std::string& cause);
  // The device says that the queue pair, in error, takes no more messages.
  void on_last_receive();
  // connect() to the fresh queue pair of the same peer.
  void reconnect(const rdma::QueuePairAddress& remote, bool dials = false);

  // Makes a fresh, unconnected queue pair, to replace the broken one; jobs
  // submitted from now on wait for connect().
  void renew();
  // The queue pair cannot be made or connected for now: what waits fails. renew() may try again.
  void fail(const std::string& cause);
  // The queue pair is in error and every posted work request was given back: renew() may follow.
  bool drained() const;
  bool unconnected() const;  // there is a fresh queue pair, which waits for the peer's
  // The peer was heard of long after the queue pair broke: what that cut off is not its end.
  void decide_alive();

  // The peer has destroyed its end of the broken queue pair.
  void settle();

  // Fails all that is pending and all that follows with what `reason` makes. No memory of a
  // transfer is touched any more when this returns. False: it was closed before.
  using Reason = std::function<Failure(Effect)>;
  bool close(Reason reason);

  // Posts the job, or queues it; its Transfer is done when everything of it has completed. When
  // many jobs wait already, so does the caller, until `deadline` at most. Throws the close()
  // reason.
  void submit(Job&& job, const Deadline& deadline);
  // At most one range of host memory, moved by one request, and a message behind it: posted at
  // once, without a Job. False: there is no room, or others wait; nothing was done. briefly: false
  // as well while another thread has the lock.
  struct Range {
    ibv_wr_opcode opcode;  // as of a Job
    Run run{};             // a: local; nbytes 0: there is none
    std::uint32_t lkey = 0;
    std::uint32_t rkey = 0;
  };
  bool submit_at_once(const std::shared_ptr<Transfer>& transfer, const Range& range,
                      const std::optional<Message>& message, bool briefly);
  // As submit(), of a job that is only a message: it takes the rail of messages, and follows what
  // the others move.
  void submit_message(Job&& job, const Deadline& deadline);
  PeerRail& submit_message(Job&& job);  // without a wait. Returns the rail that took it
  // Offers memory with those keys to the peer's recv: `transfer` is done when the peer has read it.
  void offer(const std::shared_ptr<Transfer>& transfer, const Message& message,
             const RailKeys& rkeys, SendBuffer payload, const Deadline& deadline);
  // A recv of the Peer, from whatever rail its message comes.
  void receive(PostedReceive receive);
  // No more messages of that context: waiting recvs fail, as do offers of the peer, also later
  // ones.
  void end_context(Context context);
  void wait_for_room(const Deadline& deadline);
  bool has_room() const noexcept;  // or whether it would wait

  // Bytes of payload that travel inside a message.
  std::uint32_t eager_limit() const noexcept { return group_->eager_limit(); }
  bool idle() const;                        // nothing posted, nothing waiting to be
  Settings settings() const;                // none once closed
  std::uint32_t queue_pair_number() const;  // 0 once closed
  // A queue pair beside this one, for kernels; and one for kernels of the peer.
  std::shared_ptr<DirectQueuePair> make_direct_queue_pair(
      const RingPlaces& places, const std::shared_ptr<const gpu::Device>& gpu,
      const Deadline& deadline) const;
  std::shared_ptr<DirectTarget> make_direct_target(const rdma::QueuePairAddress& source) const;
  const std::string& peer_name() const noexcept { return group_->peer_name; }
  std::string trouble() const;  // why it does not serve; empty: it does
  // Repaired in vain: it may take long until it serves again.
  bool fruitless() const noexcept { return fruitless_.load(std::memory_order_relaxed); }
  bool gone() const noexcept { return services_.rail->gone(); }  // its device was removed
  RailIndex rail() const noexcept { return services_.rail->index(); }
  const Rail& served_by() const noexcept { return *services_.rail; }
  RailStats& stats() noexcept { return stats_; }
  std::uint64_t registered_nbytes() const;  // for itself; 0 once closed
  const std::shared_ptr<Poller>& poller() const noexcept { return services_.poller; }

  void on_completion(const ibv_wc& completion) noexcept override;

  // --- for the group, with its lock held ---
  bool closed() const noexcept { return state_ == State::closed; }
  void enqueue(Job&& job);
  // As submit_message() and offer() do, without a wait. `payload` follows the message.
  void put_message(Job&& job);
  void put_offer(const std::shared_ptr<Transfer>& transfer, const Message& message,
                 const RailKeys& rkeys, SendBuffer payload = {});
  // Changes when the queue pair breaks: what was asked for before is not answered any more.
  std::uint32_t epoch() const noexcept { return epoch_; }
  void put_in_error(const std::string& cause);  // to_error()
  std::uint64_t last_job() const noexcept { return last_job_; }
  std::uint64_t jobs_done() const noexcept { return jobs_done_; }
  std::uint64_t jobs_pending() const noexcept { return last_job_ - jobs_done_; }
  // Whether something done here may not be seen by the peer's CPU yet: a message that it has not
  // said to have taken out of its slots, or a write that an adapter only acknowledged, with no
  // message behind it.
  bool may_be_unseen() const noexcept {
    return state_ != State::closed && (bare_writes_ || messages_sent_ != messages_taken_by_peer_);
  }
  // The peer may still have its end of a queue pair that broke, and what was under way there.
  bool in_repair() const noexcept {
    return state_ == State::broken || (state_ == State::unconnected && renewed_);
  }
  void advance_waiting();
  void fail_followers_of(RailIndex rail, std::uint64_t before, std::uint64_t upto);
  void release_credits();

 private:
  enum class State { unconnected, up, broken, closed };
  // Kept free in the send queue for returning credits, so that two full ends never wait for each
  // other.
  static constexpr std::uint32_t kReserve = 2;
  // ... each of which takes two where it has to be confirmed, as every chain does.
  std::uint32_t reserve() const noexcept { return limits_.confirms ? 2 * kReserve : kReserve; }
  static std::uint32_t beyond_send_depth(const Rail& rail) noexcept {
    return rail.is_iwarp() ? 2 * kReserve + 1 : kReserve;
  }
  static RailServices with_reserve(RailServices services);

  PeerRail(RailServices services, std::shared_ptr<RailGroup> group,
           std::function<void()> needs_renewal);
  std::unique_ptr<rdma::QueuePair> make_queue_pair();
  void end_queue_pair(std::unique_ptr<rdma::QueuePair> queue_pair,
                      std::shared_ptr<rdma::Connection> connection);
  void connect_queue_pair();
  bool connect_by(const std::optional<rdma::Path>& path, const rdma::QueuePairAddress& remote);
  void on_first_message();
  void come_up(bool dialled);
  int completions() const noexcept;
  void take_limits();

  PeerRail& message_rail() noexcept;
  bool may_post() const noexcept { return state_ == State::up && group_->settled(); }
  void advance_jobs();
  bool advance(Job& job);
  void finish(Job& job);
  void serve();
  std::uint32_t room_for(const Job& job) const noexcept;
  std::uint32_t least_room() const noexcept { return limits_.confirms ? 2 : 1; }
  bool has_room_for_confirmation() const noexcept {
    return !limits_.confirms || send_queue_.reads() < limits_.max_reads;
  }
  void post_probe();
  void post_credits(PostedChain&& posted);
  std::byte* add_short(WorkChain& chain, std::uint32_t nbytes) noexcept;
  bool peer_takes_message() const noexcept {
    return messages_sent_ - messages_taken_by_peer_ < remote_.receive_slots;
  }
  bool message_allowed(const Job& job, const WorkChain& chain) const noexcept;
  void add_message(WorkChain& chain, Message message, SendBuffer payload, PostedChain& posted);
  void post(WorkChain& chain, PostedChain&& posted);
  void return_credits();

  void on_post_refused(int error);
  void retire(std::uint64_t ticket);
  void on_error(const ibv_wc& completion);
  void break_down(const std::string& cause, bool flushed_untouched, bool peer_may_be_gone);
  void fail_chains(std::uint64_t last_ticket, ibv_wc_status status);
  void cut_off(const std::shared_ptr<Transfer>& transfer, Effect effect, int code);
  void cut_off_jobs();
  void decide();
  void report_if_drained();
  void count_as_done(std::uint64_t upto);

  bool take(const ibv_wc& completion) noexcept;
  void on_receive(const ibv_wc& completion);
  void on_credits(std::uint32_t more);
  void on_message(std::span<const std::byte> bytes);
  void handle(const Message& message, std::span<const std::byte> payload);
  bool is_void() const noexcept;
  void on_data_message(Arrived&& arrived);
  void refuse(const Arrived& arrived);
  void on_sealed(Message message, std::span<const std::byte> payload);
  void on_taken(const Message& message);
  void on_request(const Message& message, std::span<const std::byte> payload);
  void deliver(PostedReceive& receive, const Message& message, std::span<const std::byte> payload);
  StagedMessage staged_message(const Message& message, std::span<const std::byte> payload) const {
    return {rail(), epoch_, message, {payload.begin(), payload.end()}};
  }

  const RailServices services_;
  const std::shared_ptr<ReceivePool> receives_;
  const std::shared_ptr<RailGroup> group_;  // its lock guards all below the statistics
  const std::function<void()> needs_renewal_;
  RailStats stats_;

  std::unique_ptr<rdma::QueuePair> queue_pair_;
  std::shared_ptr<rdma::Connection> connection_;  // by a connection manager; of that one
  bool dials_ = false;                            // this end does
  bool knows_terms_ = false;                      // connect() was called
  bool heard_ = false;                            // the first message has come
  bool probing_ = false;                          // the probe is not confirmed yet
  EntryMemory entries_;
  LocalEnd local_;  // of that one
  State state_ = State::unconnected;
  Reason close_reason_;
  RailTerms remote_;
  JobLimits limits_;
  std::uint32_t mtu_nbytes_ = 0;  // of a packet, as both ends agreed
  SendQueue send_queue_;
  std::list<Job> jobs_;  // mostly empty, and takes no memory then
  std::atomic<std::size_t> jobs_waiting_{0};
  std::uint32_t epoch_ = 0;
  std::uint64_t reads_end_ = 0;        // behind the ticket of a job's data that is read
  std::uint64_t last_job_ = 0;         // numbers of jobs: given so far,
  std::uint64_t jobs_done_ = 0;        // acknowledged, or failed, with all before it,
  std::uint64_t last_broken_job_ = 0;  // and given when the queue pair broke

  // Credits: how many messages went out, how many of them the peer has taken out of its slots, how
  // many of the peer's this end has taken, and how many of those the peer knows of. They wrap.
  std::uint32_t messages_sent_ = 0;
  std::uint32_t messages_taken_by_peer_ = 0;
  std::uint32_t messages_taken_ = 0;
  bool probe_came_ = false;
  std::uint32_t messages_held_ = 0;  // not said to be taken while too much waits for a recv
  std::uint32_t messages_reported_ = 0;
  std::optional<std::uint32_t> asked_;  // messages sent when the peer was asked to tell them taken
  bool tell_soon_ = false;              // the peer asks so
  bool bare_writes_ = false;            // see may_be_unseen()
  std::array<std::byte, EntryMemory::kShort>
      inline_message_{};  // alive until posted: inline data is copied then

  // What the peer is asked to take, until it has: by a recv() there, or for a staged transfer.
  struct Offer {
    std::shared_ptr<Transfer> transfer;
    bool is_send;
  };
  std::unordered_map<std::uint32_t, Offer> offers_;
  std::uint32_t next_offer_ = 1;
  void drop_offer(const Offer& offer);

  // Transfers cut off by a lost connection: PeerLost if the peer is gone, else a VerbsError. The
  // control connection decides.
  struct Undecided {
    std::shared_ptr<Transfer> transfer;
    Effect effect;
    int code;  // ibv_wc_status
  };
  std::vector<Undecided> undecided_;
  std::vector<Offer> undecided_offers_;
  std::string break_cause_;         // of the present break-down, for those flushed with it
  bool peer_may_be_gone_ = false;   // ... whether it may be the end of the peer that caused it
  bool flushed_untouched_ = false;  // ... whether flushed requests surely never ran
  bool break_reported_ = false;
  std::atomic<bool> fruitless_{false};  // a repair did not make it serve again
  bool served_ = false;                 // the present queue pair
  bool renewed_ = false;  // has had another that broke: a fresh one must show that it works
};

}  // namespace zerohop::engine
