#include "engine/wait/transfer.hpp"

#include <infiniband/verbs.h>

#include <array>
#include <cstdio>
#include <string_view>
#include <utility>

#include "base/log.hpp"

namespace zerohop::engine {
namespace {

// By operation.
constexpr std::array<const char*, kOperations> kVerbs{"write", "read", "atomic",
                                                      "send",  "recv", "notify"};
constexpr std::array<const char*, kOperations> kSides{"to", "from", "at", "to", "from", "to"};

}  // namespace

Transfer::~Transfer() {
  if (done()) {
    tell_unheard();
    return;
  }
  if (counted_) record_.end("refused");
  uncount(/*failed=*/true);  // begun, but refused
}

std::uint64_t Transfer::result() const {
  if (!failure_) return result_;
  note_heard();
  failure_->raise();
}

// Once for each peer and route. The loss of a peer is logged elsewhere, and a flushed request is a
// consequence of an error that another transfer reports.
void Transfer::tell_unheard() const noexcept {
  if (!failure_ || !handed_out_ || heard_.load(std::memory_order_relaxed)) return;
  RouteStats* stats = route_ ? route_->stats.get() : nullptr;
  if (failure_->kind == Failure::Kind::peer_lost || stats == nullptr) return;
  if (failure_->kind == Failure::Kind::verbs && failure_->code == IBV_WC_WR_FLUSH_ERR) return;
  if (stats->logged_failure.exchange(true)) return;
  log(Level::warning, "transfer", [&] {
    return "a Transfer failed, and the program dropped it without wait(), which raises "
           "such errors: " +
           failure_->message + ". Further ones with this peer by this route are not logged";
  });
}

void Transfer::end_as_captured(std::shared_ptr<const gpu::CapturePoint> point) {
  captured_ = std::move(point);
  note_heard();  // nothing failed
  fail({.message =
            "this call has become part of a CUDA graph and has no result of its own: wait for the "
            "stream in which the graph is launched; a replay's wait that is in vain is reported by "
            "a RuntimeWarning"});
  drop();
}

void Transfer::fail(Failure failure) noexcept {
  if (!failed_.exchange(true)) failure_ = std::move(failure);
}

// "write 1048576 B to host:1234 by p2p"
void Transfer::begin_range(const trace::Tool& tool, Operation operation,
                           const std::string& peer) noexcept {
  if (range_.begun()) return;
  std::array<char, 256> name;  // longer names are cut
  const auto index = static_cast<std::size_t>(operation);
  std::snprintf(name.data(), name.size(), "%s %llu B %s %s by %s", kVerbs[index],
                static_cast<unsigned long long>(nbytes_), kSides[index], peer.c_str(),
                route_->kind.c_str());
  range_.begin(tool, name.data(), nbytes_);
}

// Once for each peer and route.
void Transfer::tell_route(const std::string& peer) const noexcept {
  if (route_->stats->logged.exchange(true)) return;
  log(Level::debug, "route", [&] {
    return "transfers with peer '" + peer + "' take " + route_->kind + " (" + route_->device +
           "): " + route_->reason;
  });
}

void Transfer::record(Operation operation, const std::string& peer) noexcept {
  record_.begin({.what = kVerbs[static_cast<std::size_t>(operation)],
                 .nbytes = nbytes_,
                 .peer = peer,
                 .route = route_->kind,
                 .device = route_->device});
}

void Transfer::count(Operation operation, const std::string& peer) noexcept {
  show(operation, peer);
  counted_ = operation;
  begun_ = ticks::now();
  route_->stats->begin(operation, nbytes_);
  route_->stats->under_way.fetch_add(1, std::memory_order_relaxed);
}

void Transfer::uncount(bool failed) noexcept {
  if (!counted_) return;
  RouteStats& stats = *route_->stats;
  if (failed) {
    RouteStats::add(stats.failures, 1);
  } else {
    stats.end(*counted_, ticks::nanoseconds(begun_, ticks::now()));
  }
  if (*counted_ == Operation::recv) RouteStats::add(stats.bytes_in, result_);
  stats.under_way.fetch_sub(1, std::memory_order_relaxed);
  counted_.reset();
}

void Transfer::drop() noexcept {
  // acq_rel: the thread that completes sees what every other one wrote (result, failure).
  if (holds_.fetch_sub(1, std::memory_order_acq_rel) != 1) return;
  kept_.reset();  // before done: a waiter may expect its memory to be released
  kept_more_.clear();
  uncount(failed());
  range_.end();
  times_.end();
  record_.end(failure_ ? std::string_view(failure_->message) : std::string_view());
  done_.set();
  poller_->wake();
}

}  // namespace zerohop::engine
