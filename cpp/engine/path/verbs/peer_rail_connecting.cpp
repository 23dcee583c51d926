// How the queue pair of a rail is connected: by the addresses of both ends, or by a connection
// manager, for which one end dials. That end sends the first message, a probe; the other one may
// send none before it has come (connection_manager.hpp).
#include <cerrno>

#include "base/error.hpp"
#include "base/report.hpp"
#include "engine/path/verbs/peer_rail.hpp"

namespace zerohop::engine {
namespace {

constexpr const char* kByAddress = "by their addresses";
constexpr const char* kByManager = "by rdma_cm over RoCE";
constexpr const char* kIwarp = "by rdma_cm over iWARP";

const char* way_of(bool managed, bool iwarp) {
  if (!managed) return kByAddress;
  return iwarp ? kIwarp : kByManager;
}

}  // namespace

// With the lock held.
void PeerRail::connect_queue_pair() {
  const rdma::QueuePairAddress& remote = remote_.queue_pair;
  const auto manager = services_.rail->manager();
  const auto* const here = way_of(manager != nullptr, services_.rail->is_iwarp());
  const auto* const there = way_of(remote.managed.port != 0, remote.managed.word != 0);
  if (here != there) {
    throw VerbsError("device " + services_.rail->name() + " connects queue pairs " + here +
                         ", and that of peer '" + group_->peer_name + "' " + there +
                         ": use devices of one kind with the same rdma_cm=, or soft0",
                     EPROTONOSUPPORT);
  }
  if (manager) {
    if (dials_) connection_ = manager->dial(local_.address, remote);
    if (!dials_ && heard_) come_up(/*dialled=*/false);
    return;
  }
  if (connect_by({}, remote)) come_up(/*dialled=*/false);
}

// False: a request of the peer has broken the queue pair. Throws VerbsError. With the lock held.
bool PeerRail::connect_by(const std::optional<rdma::Path>& path,
                          const rdma::QueuePairAddress& remote) {
  try {
    queue_pair_->connect(remote, path);
    return true;
  } catch (const VerbsError&) {
    // From RTR on the peer's requests are served, and a bad one breaks the queue pair before RTS.
    if (queue_pair_->state() != IBV_QPS_ERR) throw;
    state_ = State::broken;
    group_->set_serving(rail(), false);
    report_if_drained();
    return false;
  }
}

void PeerRail::come_up(bool dialled) {
  state_ = State::up;
  const bool must_show = renewed_ && group_->rails() > 1;
  if (dialled || must_show) post_probe();
  if (!must_show) serve();
  advance_jobs();
}

void PeerRail::dial_again() {
  const std::lock_guard lock(group_->mutex);
  const auto manager = services_.rail->manager();
  if (!manager || !dials_ || state_ != State::unconnected) return;
  connection_ = manager->dial(local_.address, remote_.queue_pair);
}

bool PeerRail::connecting() const {
  const std::lock_guard lock(group_->mutex);
  return state_ == State::unconnected && knows_terms_;
}

bool PeerRail::has(const rdma::Connection& connection) const {
  const std::lock_guard lock(group_->mutex);
  return connection_.get() == &connection;
}

void PeerRail::accept(const std::shared_ptr<rdma::Connection>& connection,
                      const rdma::Introduction& introduction) {
  const std::lock_guard lock(group_->mutex);
  const rdma::QueuePairAddress& local = local_.address;
  const rdma::QueuePairAddress& remote = remote_.queue_pair;
  const bool is_mine = state_ == State::unconnected && !connection_ &&
                       introduction.to_number == local.number && introduction.to_psn == local.psn;
  // After a repair the peer may dial before its message about its fresh queue pair is read here.
  const bool is_peer = !knows_terms_ || (introduction.from_number == remote.number &&
                                         introduction.from_psn == remote.psn);
  if (!is_mine || !is_peer || dials_) return connection->reject();
  if (const auto path = connection->path()) {
    rdma::QueuePairAddress peer = remote;
    peer.number = introduction.from_number;
    peer.psn = introduction.from_psn;
    if (!connect_by(path, peer)) return connection->reject();
  }
  connection->accept(local, remote);
  connection_ = connection;
}

void PeerRail::on_established(const rdma::Connection& connection) {
  const std::lock_guard lock(group_->mutex);
  if (connection_.get() != &connection || state_ != State::unconnected || !dials_) return;
  if (const auto path = connection_->path()) {
    if (!connect_by(path, remote_.queue_pair)) return;
    connection_->establish();
  }
  come_up(/*dialled=*/true);
}

// Soft iWARP may overlook the first message to an end that is just accepting (siw_accept() listens
// to the socket after it has answered), until more bytes come: those of a read that confirms
// nothing.
void PeerRail::nudge() {
  const std::lock_guard lock(group_->mutex);
  const bool waits = state_ == State::up && dials_ && probing_;
  if (!waits || send_queue_.room() == 0 || !has_room_for_confirmation()) return;
  if (!send_queue_.make_room()) return;
  WorkChain chain(1, 1);
  post(chain, PostedChain{});
}

// With the lock held.
void PeerRail::on_first_message() {
  heard_ = true;
  if (knows_terms_ && !dials_) come_up(/*dialled=*/false);
}

void PeerRail::on_connection_closed(const rdma::Connection& connection) {
  services_.poller->flush();  // completions give a better reason
  const std::lock_guard lock(group_->mutex);
  if (connection_.get() != &connection) return;
  break_down("the peer's end of the connection was closed", /*flushed_untouched=*/false,
             /*peer_may_be_gone=*/true);
  report_if_drained();
}

}  // namespace zerohop::engine
