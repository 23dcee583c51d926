#include "engine/path/local/neighbour.hpp"

#include <algorithm>
#include <utility>

#include "base/error.hpp"
#include "engine/notify/board_pages.hpp"

namespace zerohop::engine {
namespace {

using std::chrono::milliseconds;

// A progress thread that takes longer is as good as lost; the control channel will report it.
constexpr double kAnswer = 1.0;
constexpr milliseconds kFirstPause{100};
constexpr milliseconds kLongestPause{10'000};

std::shared_ptr<const Route> make_route(RouteBook& book, const char* how) {
  return std::make_shared<const Route>(
      Route{.kind = "p2p",
            .device = "cpu",
            .reason = std::string("both processes are on this host, and ") + how,
            .settings = {},
            .stats = book.of("p2p", "cpu")});
}

}  // namespace

Neighbour::Neighbour(std::string local_server, const shm::Token& token,
                     const std::shared_ptr<RouteBook>& book)
    : local_server_(std::move(local_server)),
      token_(token),
      pages_(make_route(*book,
                        "the remote array lies in pages that this one has mapped: the CPU copies")),
      process_(make_route(*book, "the kernel copies between them (process_vm_writev)")),
      board_(make_route(*book, "a notification is one store into the other's board")) {}

Deadline Neighbour::until(const Patience& patience) const {
  const bool waits = patience.insists || !silent_.load(std::memory_order_relaxed);
  return Deadline::after(Deadline::Seconds(waits ? std::min(patience.seconds, kAnswer) : 0));
}

// False, with the reason, if there is none for now. A session may not have been entered yet.
bool Neighbour::session(Reached& reached) {
  const std::lock_guard lock(mutex_);
  if (!session_ && !left_ && Clock::now() >= try_at_) {
    try {
      session_ = shm::LocalSession::begin(local_server_, token_, sizeof(BoardPages));
    } catch (const Error& error) {
      postpone(error.what());
    }
  }
  reached.session = session_;
  if (!session_) reached.reason = no_session_;
  return session_ && entered_;
}

void Neighbour::postpone(const std::string& reason) {
  no_session_ = reason;
  pause_ = std::clamp<Clock::duration>(2 * pause_, kFirstPause, kLongestPause);
  try_at_ = Clock::now() + pause_;
}

void Neighbour::enter(Reached& reached, const Patience& patience) {
  try {
    reached.session->enter(until(patience));
    silent_.store(false, std::memory_order_relaxed);
    const std::lock_guard lock(mutex_);
    if (session_ != reached.session) return;
    entered_ = true;
    pause_ = {};
  } catch (const TransferTimeout& error) {
    no_answer(reached, error);
  } catch (const Error& error) {
    ended(reached, error);
  }
}

// The session is over; the next one begins after a pause.
void Neighbour::ended(Reached& reached, const Error& error) {
  reached.reason = error.what();
  const std::lock_guard lock(mutex_);
  if (session_ == reached.session) {
    session_ = nullptr;
    ways_.clear();
    entered_ = false;
    postpone(error.what());
  }
  reached.session = nullptr;
}

// The answer may still come; the next call finds it.
void Neighbour::no_answer(Reached& reached, const Error& error) {
  silent_.store(true, std::memory_order_relaxed);
  unanswered_.fetch_add(1, std::memory_order_relaxed);
  reached.reason = error.what();
  reached.session = nullptr;
}

Neighbour::Reached Neighbour::reach_board(const Patience& patience) {
  Reached reached;
  if (!session(reached) && reached.session) enter(reached, patience);
  return reached;
}

Neighbour::Reached Neighbour::reach(const RemoteMemory& remote, const Patience& patience) {
  Reached reached;
  if (const auto way = known(remote.local_key)) {
    reached = {.session = way->session, .mapping = way->mapping, .reason = {}};
  } else {
    reached = reach_board(patience);
    if (!reached.session) return reached;
    reached.mapping = reached.session->find(remote.local_key);
    if (!reached.mapping) open(reached, remote, patience);
    if (!reached.mapping) return reached;
    remember(remote.local_key, reached);
  }
  const Extent extent = remote.layout.extent();
  if (!reached.mapping->trouble.empty()) {
    reached.reason = reached.mapping->trouble;
  } else if (!reached.mapping->covers(extent.begin, extent.end)) {
    reached.reason = "it exceeds the range of its key";
  }
  if (!reached.reason.empty()) reached.mapping = nullptr;
  return reached;
}

std::shared_ptr<const Neighbour::Way> Neighbour::known(std::uint64_t local_key) const {
  const std::lock_guard lock(mutex_);
  const auto found = ways_.find(local_key);
  return found == ways_.end() ? nullptr : found->second;
}

std::shared_ptr<shm::LocalSession> Neighbour::known_board() const {
  const std::lock_guard lock(mutex_);
  return entered_ ? session_ : nullptr;
}

void Neighbour::remember(std::uint64_t local_key, const Reached& reached) {
  std::vector<Ways::node_type> closed;  // unmapped outside the lock
  const std::lock_guard lock(mutex_);
  if (!reached.mapping->trouble.empty() || session_ != reached.session) return;
  forget_closed(closed);
  if (!reached.session->stands(*reached.mapping)) return;
  ways_.emplace(local_key, std::make_shared<const Way>(reached.session, reached.mapping));
}

// As the session does: mapped memory is not freed.
std::size_t Neighbour::forget_closed(std::vector<Ways::node_type>& closed) {
  const auto mapping_of = [](const auto& way) -> const shm::RemoteMapping& {
    return *way->mapping;
  };
  return session_->take_ended(ways_, struck_seen_, mapping_of, closed);
}

void Neighbour::open(Reached& reached, const RemoteMemory& remote, const Patience& patience) {
  try {
    reached.mapping = reached.session->open(remote.local_key, 0, until(patience)).mapping;
    silent_.store(false, std::memory_order_relaxed);
    if (!reached.mapping) reached.reason = "its owner closed that memory, or never shared it";
  } catch (const TransferTimeout& error) {
    no_answer(reached, error);
  } catch (const RouteUnavailable& error) {
    ended(reached, error);
  } catch (const Error& error) {
    reached.reason = error.what();
  }
}

// The put counts the notification before sleepers are read; a sleeper counts itself before it reads
// that count. All of it is sequentially consistent: either this sees the sleeper, or the sleeper
// sees the notification.
void Neighbour::notify(std::byte* board, const shm::LocalSession& session,
                       const Message& message) noexcept {
  auto& pages = *reinterpret_cast<BoardPages*>(board);
  pages.put(slot_of(message), message.value);
  if (pages.sleepers.load() != 0) session.ring();
}

void Neighbour::announce(std::byte* board, const shm::LocalSession& session) noexcept {
  auto& pages = *reinterpret_cast<BoardPages*>(board);
  pages.announce();
  if (pages.sleepers.load() != 0) session.ring();
}

const std::shared_ptr<const Route>& Neighbour::route(
    const shm::RemoteMapping* mapping) const noexcept {
  if (mapping == nullptr) return board_;
  return mapping->pages ? pages_ : process_;
}

std::size_t Neighbour::sweep() {
  std::size_t looked_at = 0;
  std::shared_ptr<shm::LocalSession> session;
  std::vector<Ways::node_type> closed;  // unmapped outside the lock
  {
    const std::lock_guard lock(mutex_);
    if (!entered_) return 0;
    session = session_;
    looked_at += forget_closed(closed);
  }
  looked_at += session->forget_ended();
  return looked_at;
}

void Neighbour::end() noexcept {
  std::shared_ptr<shm::LocalSession> last;  // unmapped outside the lock
  decltype(ways_) last_ways;
  {
    const std::lock_guard lock(mutex_);
    last = std::move(session_);
    last_ways.swap(ways_);
    left_ = true;
    entered_ = false;
    no_session_ = "the connection has ended";
  }
  if (last) last->end();
}

}  // namespace zerohop::engine
