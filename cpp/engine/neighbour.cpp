#include "engine/neighbour.hpp"

#include "base/error.hpp"
#include "engine/board.hpp"

namespace zerohop::engine {
namespace {

// A progress thread that takes longer is as good as lost; the control channel will tell.
constexpr Deadline::Seconds kAnswer{1};

std::shared_ptr<const Route> make_route(const char* how) {
  return std::make_shared<const Route>(
      Route{.kind = "p2p",
            .device = "cpu",
            .reason = std::string("both processes are on this host, and ") + how,
            .settings = {}});
}

}  // namespace

std::shared_ptr<ipc::Visit> Neighbour::visit(std::string& reason) {
  const std::lock_guard lock(mutex_);
  if (visit_) return visit_;
  if (no_visit_.empty()) {
    try {
      visit_ = ipc::Visit::begin(doorway_, token_, Deadline::after(kAnswer));
      return visit_;
    } catch (const TransferTimeout& error) {
      reason = error.what();  // it may answer the next time
      return nullptr;
    } catch (const Error& error) {
      no_visit_ = error.what();
    }
  }
  reason = no_visit_;
  return nullptr;
}

Neighbour::Reached Neighbour::reach_board() {
  Reached reached;
  reached.visit = visit(reached.reason);
  return reached;
}

Neighbour::Reached Neighbour::reach(const RemoteMemory& remote) {
  Reached reached = reach_board();
  if (!reached.visit) return reached;
  try {
    reached.window = reached.visit->open(remote.local_key, kAnswer);
  } catch (const Error& error) {
    reached.reason = error.what();
    return reached;
  }
  if (!reached.window) {
    reached.reason = "its owner has closed that memory, or never gave it";
    return reached;
  }
  const Extent extent = remote.layout.extent();
  if (!reached.window->trouble.empty()) {
    reached.reason = reached.window->trouble;
  } else if (!reached.window->covers(extent.begin, extent.end)) {
    reached.reason = "it leaves the range that its key opens";
  }
  if (!reached.reason.empty()) reached.window = nullptr;
  return reached;
}

// The read-modify-write comes either after a sleeper counted itself, and is seen to be needed, or
// before, and then the sleeper sees the notification (see Poller::wake).
void Neighbour::notify(const ipc::Visit& visit, std::uint32_t slot, std::uint32_t value) noexcept {
  auto& board = *reinterpret_cast<BoardPages*>(visit.board());
  board.put(slot, value);
  if (board.sleepers.fetch_add(0) != 0) visit.ring();
}

const std::shared_ptr<const Route>& Neighbour::route(const ipc::Window* window) {
  static const auto pages =
      make_route("the remote array lies in pages that this one has mapped: the CPU copies");
  static const auto process = make_route("the kernel copies between them (process_vm_writev)");
  static const auto board = make_route("a notification is one store into the other's board");
  if (window == nullptr) return board;
  return window->pages ? pages : process;
}

void Neighbour::leave() {
  const std::lock_guard lock(mutex_);
  visit_ = nullptr;
  no_visit_ = "the connection has ended";
}

}  // namespace zerohop::engine
