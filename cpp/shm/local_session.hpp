// A session at another process's local server: its memory within reach, copied from and to by this
// one.
//
// What the other process has to say is taken in when it comes; only who needs it waits for it, as
// long as its deadline allows, and holds no lock meanwhile. Both ends can end the session at any
// time: nothing is copied or put any more then, but for what is claimed already (see hazards.hpp).
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
  part,       // there is more: the next step goes on
  revoked,    // the exposure was closed, before or meanwhile
  unmapped,   // the kernel finds no such memory (any more), here or there
  gone,       // the process has ended
  dismissed,  // the owner has ended the session
  left,       // this end has
  crowded,    // see Hazards::Claim
};

class LocalSession {
 public:
  // Knocks; waits for nothing. Throws RouteUnavailable with the reason.
  static std::shared_ptr<LocalSession> begin(const std::string& local_server, const Token& token,
                                             std::uint64_t board_nbytes);

  // Waits until it was let in. Throws RouteUnavailable once the session has ended, TransferTimeout.
  void enter(const Deadline& deadline);

  // What open() has remembered; null: nothing.
  std::shared_ptr<const RemoteMapping> find(std::uint64_t key) const;
  struct Opened {
    std::shared_ptr<const RemoteMapping> mapping;
    std::shared_ptr<const ExportedChunk> exported;  // of memory that is not the CPU's
  };
  // What the owner exposes under this key; its `trouble` is to be looked at. Asked for once and
  // remembered, but for the chunks of memory that goes in exported chunks: there the caller
  // remembers the one around `address`. No mapping: nothing, or no more. Throws what enter()
  // throws, and Error when the owner cannot give it away or this process cannot take it in, for
  // now.
  Opened open(std::uint64_t key, std::uint64_t address, const Deadline& deadline);

  bool ended() const;  // by the owner: nothing can be asked any more

  // Whether the owner still exposes it. To be asked by who remembers it, after it did.
  bool stands(const RemoteMapping& mapping) const noexcept;
  // As GenerationTable::struck_since(), for who remembers mappings. Once entered.
  std::optional<std::vector<std::uint64_t>> struck_since(std::uint64_t& seen) const {
    return GenerationTable::struck_since(generations_->data(), seen);
  }
  // Moves what ended since `seen` from `all`, which is by key, to `ended`. mapping_of: of a value.
  // Returns how many it looked at: those, and no others.
  template <typename Map, typename WindowOf>
  std::size_t take_ended(Map& all, std::uint64_t& seen, WindowOf mapping_of,
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
  // Lets go of what its owner has closed: what stays mapped is not freed. To be called now and
  // then; open() does. Returns how many mappings it looked at: those, and no others. Once entered.
  std::size_t forget_ended();
  bool to_own_process() const noexcept;  // once entered

  // While it lives, the owner does not take the mapping's memory away: for copies that go on while
  // no thread stands by.
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
  // Why the mapping must not be touched; all: it may, by who holds it already.
  Copied refusal(const RemoteMapping* mapping) const noexcept;

  // The board, as long as this object lives: for who holds a mapping. Once entered.
  std::byte* board() const noexcept { return board_->data(); }

  // Ends it from this side: copies under way stop, who waits goes on. Any thread.
  void leave() noexcept;

  // Copies all runs; `a` of each is local, `b` is the owner's and lies in the mapping, which the
  // caller has made sure of. `nbytes` counts what was copied. In pieces of kPiece bytes, between
  // which an end of the memory or the session takes effect. Never allocates.
  Copied copy(const RemoteMapping& mapping, Direction direction, const Runs& runs,
              std::uint64_t& nbytes) noexcept;
  Copied copy(const RemoteMapping& mapping, Direction direction, std::span<const Run> runs,
              std::uint64_t& nbytes) noexcept;

  // The next piece of it, without a wait: `crowded` may pass.
  Copied copy_step(const RemoteMapping& mapping, Direction direction, Cursor& cursor,
                   std::uint64_t& nbytes) noexcept;

  // The same for a few runs of at most kPiece bytes in all; then calls `behind(std::byte* board)`,
  // in time before either end of the session. Waits for nothing but, without mapped pages, the
  // kernel, which may find only the first of them: `part`.
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
  // That call alone.
  template <typename Behind>
  Copied at_board(Behind&& behind, Patience patience = Patience::a_second) noexcept {
    const Hazards::Claim claim(hazards(), Hazards::kBoard, patience);
    if (const Copied no = refusal(claim, nullptr); no != Copied::all) return no;
    behind(board_->data());
    return Copied::all;
  }

  static constexpr std::uint64_t kPiece = std::uint64_t{4} << 20;

  // Wakes who sleeps beside the board.
  void ring() const noexcept;

 private:
  struct Question {
    std::uint32_t sequence = 0;
    Deadline::Clock::time_point asked;
    bool answered = false;
    Opened opened;
    std::string trouble;  // why there is no answer yet
  };
  using Mappings = std::unordered_map<std::uint64_t, std::shared_ptr<const RemoteMapping>>;
  using Wanted = std::pair<std::uint64_t, std::uint64_t>;  // key, address
  using Lock = std::unique_lock<Mutex<Rank::session>>;

  LocalSession(UniqueFd socket, std::uint64_t board_nbytes)
      : socket_(std::move(socket)), board_nbytes_(board_nbytes) {}

  void enter(Lock& lock, const Deadline& deadline);
  template <typename Done>
  bool listen(Lock& lock, Done done, const Deadline& deadline);
  // With the mutex held:
  void hear() noexcept;
  std::size_t forget_ended(std::vector<Mappings::node_type>& ended);
  void take(const Given& given, Packet& packet);
  void take(const Told& told, Packet& packet);
  Opened take_in(const Told& told, Packet& packet) const;
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
  // Under one claim, as the next two.
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

  // Given before enter() returns, and never changed.
  std::unique_ptr<const Mapping> generations_;
  std::unique_ptr<const Mapping> hazards_;
  std::unique_ptr<const Mapping> board_;
  int process_ = 0;             // of the owner, as this process sees it
  std::string process_reason_;  // why its memory cannot be reached; empty: it can

  mutable Mutex<Rank::session> mutex_;  // guards all below
  Condition heard_;
  bool listening_ = false;  // a thread waits for the socket, the others for that thread
  std::uint32_t gifts_ = 0;
  std::optional<std::string> ended_;
  std::uint32_t last_sequence_ = 0;
  Mappings mappings_;  // by key
  std::uint64_t struck_seen_ = 0;
  std::map<Wanted, std::shared_ptr<Question>> questions_;  // not answered yet

  Mutex<Rank::session_holds> holds_mutex_;  // guards the next
  std::vector<int> holds_;                  // by slot, as far as any was ever held
};

}  // namespace zerohop::shm
