// One asynchronous operation: returned to the caller of write, read, send, ...
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <utility>
#include <vector>

#include "base/failure.hpp"
#include "base/recording.hpp"
#include "base/ticks.hpp"
#include "base/trace.hpp"
#include "engine/done.hpp"
#include "engine/stats/route.hpp"
#include "engine/times.hpp"
#include "engine/wait/poller.hpp"
#include "gpu/capture.hpp"
#include "gpu/mark.hpp"

namespace zerohop::engine {

class Transfer {
 public:
  // poller: null if end_at_once() follows.
  Transfer(std::shared_ptr<Poller> poller, std::uint64_t nbytes, std::shared_ptr<const Route> route)
      : poller_(std::move(poller)), nbytes_(nbytes), route_(std::move(route)) {}
  ~Transfer();
  Transfer(const Transfer&) = delete;
  Transfer& operator=(const Transfer&) = delete;

  bool done() const noexcept { return done_.is(); }
  std::uint64_t nbytes() const noexcept { return nbytes_; }
  const Route& route() const noexcept { return *route_; }
  const std::shared_ptr<const Route>& shared_route() const noexcept { return route_; }
  const Times& times() const noexcept { return times_; }

  // After done(): the old value of an atomic, the bytes received by recv, else 0. Throws the error
  // that ended the transfer, if any.
  std::uint64_t result() const;
  // Returned to the program, which may never check the result: then a failure is logged.
  void hand_out() noexcept { handed_out_ = true; }
  // The failure has been raised or reported.
  void note_heard() const noexcept { heard_.store(true, std::memory_order_relaxed); }

  void poll() const noexcept {
    if (!done()) poller_->poll();
  }
  // False if the deadline passed first: the transfer goes on.
  bool wait(const Deadline& deadline) {
    return done() || poller_->wait([this] { return done(); }, deadline);
  }

  // See Done::on_set() and forget().
  Done::Id on_done(std::function<void()> callback) { return done_.on_set(std::move(callback)); }
  void forget(Done::Id id) noexcept { done_.forget(id); }

  // --- for the engine ---

  // The transfer is done when every hold is dropped; the maker has the first one. keep() keeps
  // memory alive and registered until then.
  void hold() noexcept { holds_.fetch_add(1, std::memory_order_relaxed); }
  void drop() noexcept;
  // Replaces the first drop() if no other thread knows the transfer and nothing is counted or kept.
  void end_at_once() noexcept {
    range_.end();
    times_.end();
    record_.end();
    done_.set_at_once();
  }
  void keep(std::shared_ptr<const void> owner) {
    if (!kept_) {
      kept_ = std::move(owner);  // the usual single one costs no allocation
    } else {
      kept_more_.push_back(std::move(owner));
    }
  }
  // Everything that is kept; for the thread that will end the transfer.
  std::vector<std::shared_ptr<const void>> kept() const {
    auto all = kept_more_;
    all.push_back(kept_);
    return all;
  }
  // Set by its maker: a word in which a stream sees that it is done.
  void set_mark(gpu::Mark mark) { mark_ = std::move(mark); }
  const std::optional<gpu::Mark>& mark() const noexcept { return mark_; }
  // In place of drop(): the call has become part of a CUDA graph, and result() throws that.
  void end_as_captured(std::shared_ptr<const gpu::CapturePoint> point);
  // Null: it has not.
  const std::shared_ptr<const gpu::CapturePoint>& captured() const noexcept { return captured_; }
  void set_result(std::uint64_t value) noexcept { result_ = value; }
  // Counts it among the transfers of its route until it ends. Call it before others can end it.
  void count(Operation operation, const std::string& peer) noexcept;
  // Shows it to a listening tool as a time range until it ends, and records it. Call it before
  // others can end it; count() does this, too.
  void show(Operation operation, const std::string& peer) noexcept {
    if (!route_->stats->logged.load(std::memory_order_relaxed)) tell_route(peer);
    if (trace::records()) record(operation, peer);
    if (const trace::Tool* tool = trace::tool()) begin_range(*tool, operation, peer);
  }
  // The first failure is reported; those that follow from it are not.
  void fail(Failure failure) noexcept;
  // A device, a GPU or a CPU has started to move it.
  void note_begun() noexcept { times_.begin(); }
  // Part of the data has been placed: a later failure leaves the destination changed.
  void note_progress() noexcept { progressed_.store(true, std::memory_order_relaxed); }
  bool progressed() const noexcept { return progressed_.load(std::memory_order_relaxed); }
  // All of the data has been placed; only a device's notification is missing.
  void note_placed() noexcept { placed_ = nbytes_ > 0; }
  bool placed() const noexcept { return placed_; }
  // Several rails move it: the state of one share says nothing about the others.
  void set_striped() noexcept { striped_ = true; }
  bool striped() const noexcept { return striped_; }
  const Failure* failure() const noexcept {
    return failure_ ? &*failure_ : nullptr;
  }  // once done()
  bool failed() const noexcept { return failed_.load(std::memory_order_relaxed); }

 private:
  void uncount(bool failed) noexcept;
  void tell_route(const std::string& peer) const noexcept;
  void tell_unheard() const noexcept;
  void record(Operation operation, const std::string& peer) noexcept;
  void begin_range(const trace::Tool& tool, Operation operation, const std::string& peer) noexcept;

  const std::shared_ptr<Poller> poller_;
  const std::uint64_t nbytes_;
  const std::shared_ptr<const Route> route_;
  Times times_;
  std::atomic<int> holds_{1};
  std::atomic<bool> failed_{false};
  std::atomic<bool> progressed_{false};
  Done done_;
  bool striped_ = false;
  bool placed_ = false;
  bool handed_out_ = false;
  mutable std::atomic<bool> heard_{false};
  std::optional<Operation> counted_;
  std::uint64_t begun_ = 0;  // in ticks, once counted
  trace::Range range_;
  trace::Entry record_;
  std::uint64_t result_ = 0;
  std::optional<gpu::Mark> mark_;
  std::shared_ptr<const gpu::CapturePoint> captured_;
  std::optional<Failure> failure_;
  std::shared_ptr<const void> kept_;
  std::vector<std::shared_ptr<const void>> kept_more_;
};

}  // namespace zerohop::engine
