// The staged transfers with one Peer: GPU memory that no adapter reaches, moved through rings of
// pinned host memory.
//
// A transfer is cut into chunks. Each takes a slot of a local ring: the GPU copies into it and the
// adapter sends from it, or the other way around. If the peer's adapter does not reach the far side
// either, a request goes to the peer: for `pull` it reads the slot and copies that to its GPU, for
// `push` it copies from its GPU and writes into the slot; it answers `taken`. For requests it uses
// separate rings that never wait for the other side, only for the device and the GPU: so two peers
// that write to each other do not deadlock.
//
// All of it runs on the Stager's thread, except put() and serve(). Requests that arrived
// on a broken queue pair are not answered: the peer sees the error at its own end, and may have
// given the slot to another chunk.
#pragma once

#include <atomic>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <list>
#include <map>
#include <memory>
#include <vector>

#include "base/locks.hpp"
#include "engine/memory/staged_memories.hpp"
#include "engine/path/pending_work.hpp"
#include "engine/path/staged/staged_work.hpp"
#include "engine/path/staged/stager.hpp"
#include "engine/path/staged/staging_ring.hpp"
#include "engine/path/verbs/rail_group.hpp"
#include "engine/path/verbs/staged_messages.hpp"

namespace zerohop::engine {

// The ranges of staged memory in a request, encoded for the wire.
std::vector<std::byte> encode_ranges(const std::vector<StagedSpan>& spans);
std::size_t ranges_within(std::size_t nbytes);  // how many of them fit

class Staging : public StagedMessages, public std::enable_shared_from_this<Staging> {
 public:
  struct Services {
    std::shared_ptr<Poller> poller;
    std::shared_ptr<HostRegistrations> registrations;
    std::shared_ptr<StagedMemories> memories;  // of this Endpoint, for peers
    std::shared_ptr<Stager> stager;
    std::shared_ptr<SendPool> sends;
    std::shared_ptr<PendingWork> pending;  // counts the transfers
    std::size_t chunk = 0;                 // bytes
  };
  Staging(Services services, std::shared_ptr<RailGroup> group)
      : services_(std::move(services)), group_(std::move(group)) {}

  // Works end in order as far as messages go: the finish of a work is called when it and all
  // earlier works are in place. If an earlier one fails, the work fails with it.
  void put(StagedWork work);
  // Into or from `near`: between a GPU and packed bytes of this process that the transfer keeps.
  static StagedPiece beside(const Layout& near, std::shared_ptr<const gpu::Device> gpu,
                            const void* packed);
  void deliver(const PostedReceive& receive, const Layout& into,
               const StagedMessage& came) override;
  void serve(StagedMessage asked) override;
  // The number of works put so far; settled() of them, the first ones, have ended.
  std::uint64_t put_so_far() const noexcept { return put_.load(); }
  std::uint64_t settled() const noexcept { return settled_.load(); }
  // Waits while many works are under way, at most until the deadline.
  void wait_for_room(const Deadline& deadline) const;

  // Whether memory is being copied for the peer. Once its paths are closed, no more copies start.
  bool answering() const noexcept { return answering_.load() > 0; }

  // Advances all work as far as possible.
  using Pace = StagingPace;
  Pace advance();
  bool ended() const noexcept { return works_.empty() && answers_.empty(); }

 private:
  using Clock = std::chrono::steady_clock;
  using Works = std::list<StagedWork>;
  using Rings = std::map<int, std::shared_ptr<StagingRing>>;  // by ordinal; -1: the host's
  struct Chunk {
    StagedWork* work;
    StagingRing* ring;
    unsigned slot;
    std::vector<StagedSpan> spans;
    std::uint64_t nbytes;
    std::shared_ptr<Transfer> move;  // between slot and far side; null: it is being copied
    Clock::time_point copying{};     // ... since
    StagingRing::Held held{};        // ... for a peer
  };

  void wake();
  void take_inbox();
  bool any_hung() noexcept;
  void accept(const StagedMessage& request);
  bool add_ranges(const StagedMessage& request, StagedWork& work) const;
  void retire_works();
  void note_settled();
  void retire_answers();
  void finish(StagedWork& work) noexcept;
  void answer(const StagedWork& work) noexcept;

  // --- chunks (staging_chunks.cpp) ---
  void start_chunks(Works& works, Rings& rings);
  bool start_chunk(StagedWork& work, Rings& rings);
  StagingRing& ring_of(Rings& rings, const std::shared_ptr<const gpu::Device>& gpu);
  bool step(Chunk& chunk);
  bool step_copy(Chunk& chunk);
  bool step_move(Chunk& chunk);
  void park(Chunk& chunk, Failure failure);
  void copy(Chunk& chunk);
  static int start_copies(const Chunk& chunk);
  bool borrow(Chunk& chunk);
  void move(Chunk& chunk);
  void move_by_device(Chunk& chunk);
  void move_by_owner(Chunk& chunk);
  static void move_here(const Chunk& chunk);
  PeerRail& path_for(const Chunk& chunk) const;
  bool is_asked(const StagedAnswer& answer) const;
  bool stands(const StagedAnswer& answer) const;

  const Services services_;
  const std::shared_ptr<RailGroup> group_;
  std::atomic<std::uint64_t> put_{0};      // number of works so far; numbered from 1
  std::atomic<std::uint64_t> settled_{0};  // every work up to this one has ended
  std::atomic<int> answering_{0};

  Mutex<Rank::staging_inbox>
      inbox_mutex_;  // taken after the group's, before the Stager's; guards the next
  Works new_works_;
  std::vector<StagedMessage> new_requests_;
  std::uint64_t taken_ = 0;  // number of the last work taken from there

  // For the Stager's thread only. Rings of works may wait for the peer, those of answers never do.
  Rings work_rings_;
  Rings answer_rings_;
  Works works_;  // in the order of the calls
  Works answers_;
  std::list<Chunk> chunks_;
};

}  // namespace zerohop::engine
