// A session at another process's local server: makes its memory accessible, and copies to and from
// it.
//
// Packets from the other process are processed when they arrive. Only a caller that needs an answer
// waits for it, within its deadline and without holding a lock. Both ends can end the session at
// any time: after that nothing is copied or put, except under existing claims (see hazards.hpp).
#pragma once

#include <atomic>
#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <unordered_map>
#include <utility>
#include <vector>

#include "base/deadline.hpp"
#include "base/locks.hpp"
#include "base/runs.hpp"
#include "base/unique_fd.hpp"
#include "shm/hazards.hpp"
#include "shm/knock.hpp"
#include "shm/mapping.hpp"
#include "shm/packet.hpp"
#include "shm/pieces.hpp"
#include "shm/remote_mapping.hpp"

namespace zerohop::shm {

enum class Direction { write, read };

enum class Copied {
  all,
  part,       // not finished: continue with the next step
  revoked,    // the exposure was closed, before or meanwhile
  unmapped,   // the kernel finds no such memory (any more), on either side
  gone,       // the process has ended
  dismissed,  // the owner has ended the session
  left,       // this end has ended it
  crowded,    // see Hazards::Claim
};

class LocalSession {
 public:
  // Sends the knock; does not wait. Throws RouteUnavailable with the reason.
  static std::shared_ptr<LocalSession> begin(const std::string& local_server, const Token& token,
                                             std::uint64_t board_nbytes);

  // Waits for admission. Throws RouteUnavailable once the session has ended, TransferTimeout.
  void enter(const Deadline& deadline);

  // A mapping cached by open(); null: none.
  std::shared_ptr<const RemoteMapping> find(std::uint64_t key) const;
  struct Opened {
    std::shared_ptr<const RemoteMapping> mapping;
    std::shared_ptr<const ExportedChunk> exported;  // of memory that a CPU cannot access
  };
  // What the owner exposes under this key; check its `trouble`. The owner is asked once and the
  // answer is cached, except for exported chunks: the caller caches the one around `address`. No
  // mapping: not exposed, or no longer. Throws what enter() throws, and Error when for now the
  // owner cannot export the memory or this process cannot map it.
  Opened open(std::uint64_t key, std::uint64_t address, const Deadline& deadline);

  bool ended() const;  // by the owner: it answers no more questions

  // Whether the owner still exposes it. Check this after storing a mapping.
  bool stands(const RemoteMapping& mapping) const noexcept;
  // GenerationTable::struck_since() for callers that store mappings. Call after enter().
  std::optional<std::vector<std::uint64_t>> struck_since(std::uint64_t& seen) const {
    return GenerationTable::struck_since(generations_->data(), seen);
  }
  // Moves the entries that ended since `seen` from `all`, keyed by exposure key, to `ended`.
  // mapping_of: maps a value to its mapping. Returns how many entries it visited: only those that
  // ended, if their keys are still known.
  template <typename Map, typename MappingOf>
  std::size_t take_ended(Map& all, std::uint64_t& seen, MappingOf mapping_of,
                         std::vector<typename Map::node_type>& ended) const {
    if (const auto struck = struck_since(seen)) {
      for (const std::uint64_t key : *struck) ended.push_back(all.extract(key));
      return struck->size();
    }
    const std::size_t looked_at = all.size();
    for (auto next = all.begin(); next != all.end();) {
      const auto at = next++;
      if (!stands(mapping_of(at->second))) ended.push_back(all.extract(at));
    }
    return looked_at;
  }
  // Releases mappings that the owner has closed: mapped memory cannot be freed. Call periodically;
  // open() does. Returns how many mappings it visited, as take_ended(). Call after enter().
  std::size_t forget_ended();
  bool to_own_process() const noexcept;  // call after enter()

  // While a Hold lives, the owner keeps the mapping's memory: for copies that continue without a
  // thread.
  struct LetGo {
    std::shared_ptr<LocalSession> session;
    std::uint32_t slot = 0;
    void operator()(LocalSession* of) const noexcept { of->change_holds(slot, -1); }
  };
  using Hold = std::unique_ptr<LocalSession, LetGo>;
  static Hold hold(const std::shared_ptr<LocalSession>& session, const RemoteMapping& mapping) {
    const std::uint32_t slot = mapping.entry.slot;
    session->change_holds(slot, +1);
    return {session.get(), {session, slot}};
  }
  // Why the mapping must not be accessed; all: it may, by a holder of a claim or a Hold.
  Copied refusal(const RemoteMapping* mapping) const noexcept;

  // The board; valid as long as this object, for holders of a mapping. Call after enter().
  std::byte* board() const noexcept { return board_->data(); }

  // Ends the session from this side: copies in progress stop, and waiting threads return.
  // Thread-safe.
  void end() noexcept;

  // Copies all runs; `a` of each is local, `b` is the owner's and must lie in the mapping. `nbytes`
  // counts what was copied. Works in pieces of kPiece bytes, between which the end of the memory or
  // the session takes effect. Never allocates.
  Copied copy(const RemoteMapping& mapping, Direction direction, const Runs& runs,
              std::uint64_t& nbytes) noexcept;
  Copied copy(const RemoteMapping& mapping, Direction direction, std::span<const Run> runs,
              std::uint64_t& nbytes) noexcept;

  // Copies the next piece without waiting: `crowded` is transient.
  Copied copy_step(const RemoteMapping& mapping, Direction direction, Cursor& cursor,
                   std::uint64_t& nbytes) noexcept;

  // The same for a few runs of at most kPiece bytes in all; then calls `behind(std::byte* board)`,
  // before either end of the session can take effect. Never waits, except for the kernel where
  // there are no mapped pages; the kernel may find only the first runs: `part`.
  template <typename Behind>
  Copied copy(const RemoteMapping& mapping, Direction direction, std::span<const Run> runs,
              Behind&& behind) noexcept {
    const Hazards::Claim claim(hazards(), mapping.entry.slot, Patience::none);
    if (const Copied no = refusal(claim, &mapping); no != Copied::all) return no;
    if (!mapping.pages) {
      const Copied no = copy_by_kernel(direction, runs);
      if (no != Copied::all) return no;
    } else {
      for (const Run& run : runs) copy_run(mapping, direction, run);
    }
    behind(board_->data());
    return Copied::all;
  }
  // Only makes the call.
  template <typename Behind>
  Copied at_board(Behind&& behind, Patience patience = Patience::a_second) noexcept {
    const Hazards::Claim claim(hazards(), Hazards::kBoard, patience);
    if (const Copied no = refusal(claim, nullptr); no != Copied::all) return no;
    behind(board_->data());
    return Copied::all;
  }

  static constexpr std::uint64_t kPiece = std::uint64_t{4} << 20;

  // Wakes threads that sleep beside the board.
  void ring() const noexcept;

 private:
  struct Question {
    std::uint32_t sequence = 0;
    Deadline::Clock::time_point asked;
    bool answered = false;
    Opened opened;
    std::string trouble;  // why the answer could not be used
  };
  using Mappings = std::unordered_map<std::uint64_t, std::shared_ptr<const RemoteMapping>>;
  using Wanted = std::pair<std::uint64_t, std::uint64_t>;  // key, address
  using Lock = std::unique_lock<Mutex<Rank::session>>;

  LocalSession(UniqueFd socket, std::uint64_t board_nbytes)
      : socket_(std::move(socket)), board_nbytes_(board_nbytes) {}

  void enter(Lock& lock, const Deadline& deadline);
  template <typename Done>
  bool listen(Lock& lock, Done done, const Deadline& deadline);
  // Call with the mutex held:
  void hear() noexcept;
  std::size_t forget_ended(std::vector<Mappings::node_type>& ended);
  void take(const Given& given, Packet& packet);
  void take(const Reply& reply, Packet& packet);
  Opened take_in(const Reply& reply, Packet& packet) const;
  void ask(const Wanted& wanted);
  void change_holds(std::uint32_t slot, int by);
  void end(std::string_view reason) noexcept;
  [[noreturn]] void throw_ended() const;

  void find_process(const Given& given);
  Hazards& hazards() const noexcept { return *reinterpret_cast<Hazards*>(hazards_->data()); }
  Copied refusal(const Hazards::Claim& claim, const RemoteMapping* mapping) const noexcept {
    return claim ? refusal(mapping) : Copied::crowded;
  }
  bool gone() const noexcept;
  static void copy_run(const RemoteMapping& mapping, Direction direction, const Run& run) noexcept;
  template <typename Source>
  Copied copy_all(const RemoteMapping& mapping, Direction direction, Pieces<Source> pieces,
                  std::uint64_t& nbytes) noexcept;
  // This and the next two run under one claim.
  template <typename Source>
  Copied copy_some(const RemoteMapping& mapping, Direction direction, Pieces<Source>& pieces,
                   std::uint64_t& nbytes, Patience patience) noexcept;
  template <typename Source>
  Copied copy_pages(const RemoteMapping& mapping, Direction direction, Pieces<Source>& pieces,
                    std::uint64_t& nbytes, Patience patience) noexcept;
  template <typename Source>
  Copied copy_process(const RemoteMapping& mapping, Direction direction, Pieces<Source>& pieces,
                      std::uint64_t& nbytes, Patience patience) noexcept;
  template <typename Source>
  Copied copy_by_kernel(Direction direction, Pieces<Source>& pieces,
                        std::uint64_t& nbytes) noexcept;
  Copied copy_by_kernel(Direction direction, std::span<const Run> runs) noexcept;

  const UniqueFd socket_;
  const std::uint64_t board_nbytes_;
  std::atomic<bool> left_{false};

  // Set before enter() returns, then constant.
  std::unique_ptr<const Mapping> generations_;
  std::unique_ptr<const Mapping> hazards_;
  std::unique_ptr<const Mapping> board_;
  int process_ = 0;             // the owner's, as this process sees it
  std::string process_reason_;  // why its memory is not accessible; empty: it is

  mutable Mutex<Rank::session> mutex_;  // guards all members below
  Condition heard_;
  bool listening_ = false;  // one thread polls the socket, the others wait for it
  std::uint32_t gifts_ = 0;
  std::optional<std::string> ended_;
  std::uint32_t last_sequence_ = 0;
  Mappings mappings_;  // by key
  std::uint64_t struck_seen_ = 0;
  std::map<Wanted, std::shared_ptr<Question>> questions_;  // unanswered

  Mutex<Rank::session_holds> holds_mutex_;  // guards the next
  std::vector<int> holds_;                  // by slot, up to the highest one ever held
};

}  // namespace zerohop::shm
