// A Peer as a process of this host, whose memory this one copies from and to by itself: the p2p
// route, for the host's memory (neighbour.cpp) and by GPUs (neighbour_gpu.cpp).
#pragma once

#include <atomic>
#include <chrono>
#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <unordered_map>
#include <utility>
#include <vector>

#include "base/deadline.hpp"
#include "base/locks.hpp"
#include "engine/memory/gpu_choice.hpp"
#include "engine/memory/remote_memory.hpp"
#include "engine/path/gpu/gpu_notifier.hpp"
#include "engine/path/gpu/gpu_reach.hpp"
#include "engine/path/gpu/gpu_windows.hpp"
#include "engine/path/local/host_windows.hpp"
#include "engine/path/message.hpp"
#include "engine/path/transfer_options.hpp"
#include "engine/stats/route.hpp"
#include "engine/wait/transfer.hpp"
#include "ipc/visit.hpp"

namespace zerohop::engine {

// What is to follow once a transfer's copies are placed.
struct NeighbourEnd {
  std::shared_ptr<Transfer> transfer;
  std::shared_ptr<ipc::Visit> visit;
  std::optional<Message> message;  // a notification
  bool put_by_gpu = false;         // it has followed when the copies are seen to be done
  Room room = Room::wait;          // where a device has to bring it
};

// What one transfer copies. `a` of each piece is local, `b` the Peer's.
struct NeighbourCopy : NeighbourEnd {
  struct Piece {
    Layout local;
    Layout remote;
    std::shared_ptr<const ipc::Window> window;
    std::shared_ptr<const void> owner;  // keeps the local memory alive
    std::vector<Run> runs{};            // of a list of pages of the two; empty: it is all of them
  };
  ipc::Direction direction{};
  std::vector<Piece> pieces;
  std::uint64_t nbytes = 0;  // of all pieces

  // How far it is, if it is made in steps.
  struct Progress {
    bool begun = false;
    std::size_t piece = 0;
    std::optional<ipc::Cursor> cursor{};  // in that piece
    std::uint64_t nbytes = 0;
    std::optional<Deadline> until{};  // while it cannot go on
  };
  Progress progress{};
};

class Neighbour {
 public:
  // doorway: as the Peer told it; nothing happens before the first reach().
  Neighbour(std::string doorway, const ipc::Token& token, std::shared_ptr<RouteBook> book);

  // What is reached: with a window, or with the reason why there is none.
  struct Reached {
    std::shared_ptr<ipc::Visit> visit;
    std::shared_ptr<const ipc::Window> window;
    std::string reason;
    std::shared_ptr<const Route> by_gpu{};  // of memory of a GPU
  };
  // How long the other process may take to answer, where it has to be asked: a second at most, and
  // no time at all after it once took longer, unless the caller insists.
  struct Patience {
    double seconds;
    bool insists;
  };
  // Holds no lock while it waits. What fails is tried again later: after 0.1 s, doubled up to 10 s.
  Reached reach(const RemoteMemory& remote, const Patience& patience);
  // Host memory that was reached before.
  struct Way {
    std::shared_ptr<ipc::Visit> visit;
    std::shared_ptr<const ipc::Window> window;
  };
  std::shared_ptr<const Way> known(std::uint64_t local_key) const;  // null: it is to be reached
  // Memory of a GPU in one chunk that was reached before, for that GPU of this process.
  struct GpuWay {
    std::shared_ptr<ipc::Visit> visit;
    std::weak_ptr<const GpuWindows::Spot> place;  // it stays mapped for nobody's remembering
    std::shared_ptr<const Route> route;
  };
  std::shared_ptr<const GpuWay> known_by_gpu(std::uint64_t local_key, int ordinal) const;
  void remember_by_gpu(std::uint64_t local_key, const GpuReach& reached);
  // The same for memory of a GPU, chunk by chunk, mapped for a GPU of this process. Sets all but
  // what is local, and the route.
  GpuReach reach_by_gpu(const RemoteMemory& remote,
                        const std::shared_ptr<const gpu::Device>& device, const Patience& patience);
  // ... by one that is chosen: the very one that the memory lies on, where this process sees it.
  // given: see GpuChoice::table().
  GpuReach reach_by_any_gpu(const RemoteMemory& remote, const GpuChoice::Table& given,
                            const Patience& patience);
  // ... by the one of that stream. Throws RouteUnavailable where it has none.
  GpuReach reach_by_gpu_of(driver::CudaStream stream, const RemoteMemory& remote,
                           const GpuChoice::Table& given, const Patience& patience);
  // Memory of the host, page-locked here.
  GpuReach reach_host_by_gpu(const RemoteMemory& remote,
                             const std::shared_ptr<const gpu::Device>& device,
                             const Patience& patience);
  // For a GPU of this process to put a notification into the board.
  GpuNotifier::Place place_for_gpu(const std::shared_ptr<ipc::Visit>& visit,
                                   const std::shared_ptr<const gpu::Device>& device,
                                   const Message& message, const Patience& patience) {
    return notifier_.place(visit, gpus_, device, message.tag, message.value,
                           [&] { return until(patience); });
  }
  // For kernels of the program to do so. Throws RouteUnavailable, and what mapping may.
  KernelNotes notes_for_kernels(const std::shared_ptr<ipc::Visit>& visit,
                                const std::shared_ptr<const gpu::Device>& device, Hearers hearers,
                                const Patience& patience) {
    return notifier_.for_kernels(visit, gpus_, device, hearers, until(patience));
  }
  // The board alone.
  Reached reach_board(const Patience& patience);
  std::shared_ptr<ipc::Visit> known_board() const;  // null: it is to be reached

  // What a GPU has put there by itself.
  static void announce(std::byte* board, const ipc::Visit& visit) noexcept;
  static void notify(std::byte* board, const ipc::Visit& visit, const Message& message) noexcept;

  // Of host memory. Null: of a notification alone.
  const std::shared_ptr<const Route>& route(const ipc::Window* window) const noexcept;
  // remote: the GPU's name in the other process.
  std::shared_ptr<const Route> gpu_route(const GpuReach& reached, bool local_on_host,
                                         const std::string& remote);
  // To be called now and then. Returns at how much of what is mapped it looked: what was closed
  // since, and no more.
  std::size_t sweep();
  std::map<int, GpuWindows::Mapped> mapped() const { return gpus_.mapped(); }
  // How often the other process did not answer in time.
  std::uint64_t unanswered() const noexcept { return unanswered_.load(); }

  // Lets go of everything that is mapped, ends copies under way, and never comes back. Waits for
  // nothing.
  void leave() noexcept;

 private:
  using Clock = Deadline::Clock;

  using Ways = std::unordered_map<std::uint64_t, std::shared_ptr<const Way>>;

  void remember(std::uint64_t local_key, const Reached& reached);
  // With mutex_ held, in a visit that was entered.
  std::size_t forget_closed(std::vector<Ways::node_type>& closed);
  bool visit(Reached& reached);
  void enter(Reached& reached, const Patience& patience);
  void open(Reached& reached, const RemoteMemory& remote, const Patience& patience);
  template <typename Reach>  // what fails of it is the reason
  GpuReach try_gpu(const Patience& patience, Reach reach);
  void ended(Reached& reached, const Error& error);
  void no_answer(Reached& reached, const Error& error);
  void postpone(const std::string& reason);  // with mutex_ held
  Deadline until(const Patience& patience) const;

  const std::string doorway_;
  const ipc::Token token_;
  const std::shared_ptr<RouteBook> book_;
  const std::shared_ptr<const Route> pages_;
  const std::shared_ptr<const Route> process_;
  const std::shared_ptr<const Route> board_;
  GpuWindows gpus_;
  HostWindows hosts_;
  GpuChoice choice_;
  GpuNotifier notifier_;
  std::atomic<std::uint64_t> unanswered_{0};
  std::atomic<bool> silent_{false};  // it left the last question unanswered

  mutable Mutex<Rank::neighbour> mutex_;  // guards all below
  std::shared_ptr<ipc::Visit> visit_;
  // By key, of the present visit. One owner and one lock stand for two of each: a copy of a few
  // bytes takes no longer than those.
  Ways ways_;
  std::uint64_t struck_seen_ = 0;
  std::map<std::pair<std::uint64_t, int>, std::shared_ptr<const GpuWay>> gpu_ways_;  // and ordinal
  std::size_t gpu_ways_most_ = 64;  // entries at which those of what is gone are swept out
  bool entered_ = false;
  bool left_ = false;
  std::string no_visit_;        // why there is none
  Clock::time_point try_at_{};  // not before
  Clock::duration pause_{};     // before the next try but one
  struct GpuRoute {
    int copies;          // ordinal of the GPU that does
    bool local_on_host;  // the local array
    int there;           // the peer's GPU as this process calls it
    std::string remote;  // ... and as the peer does
    std::shared_ptr<const Route> route;
  };
  std::vector<GpuRoute> gpu_routes_;  // a few
};

}  // namespace zerohop::engine
