// The faults of one device context: their settings for all its queue pairs, their counts, and the
// removal of the device.
#pragma once

#include <infiniband/verbs.h>

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>

#include "base/log.hpp"
#include "softhca/faults.hpp"
#include "softhca/timers.hpp"

namespace zerohop::softhca {

class Context;
class FaultyWire;
class QueuePair;

class DeviceFaults final : public Timed {
 public:
  explicit DeviceFaults(Context& context) : context_(context) {}
  ~DeviceFaults();
  DeviceFaults(const DeviceFaults&) = delete;
  DeviceFaults& operator=(const DeviceFaults&) = delete;

  // For present and future queue pairs. Takes Context::control. Throws std::bad_alloc.
  void set(const Faults& faults);
  // For a queue pair being created; null without faults. Called with Context::control held.
  std::unique_ptr<FaultyWire> wire_of(QueuePair& qp);

  // A request was posted. Returns whether the device is removed by it.
  bool posted() noexcept;
  // Whether the device has room for one more beside `there`; counts refusals.
  bool has_room_for_qp(std::size_t there) noexcept {
    return has_room(max_qp_, there, Fault::max_qp);
  }
  bool has_room_for_cq(std::size_t there) noexcept {
    return has_room(max_cq_, there, Fault::max_cq);
  }
  bool has_room_for_mr(std::size_t there) noexcept {
    return has_room(max_mr_, there, Fault::max_mr);
  }
  // Lowers the limits that ibv_query_device returns.
  void limit(ibv_device_attr& attributes) const noexcept;

  bool gone() const noexcept { return gone_.load(std::memory_order_relaxed); }

  void on_time() noexcept override;  // removes the device

  // Readers may keep it after the device is destroyed.
  const std::shared_ptr<FaultCounts> counts = std::make_shared<FaultCounts>();

 private:
  using Limit = std::atomic<std::uint64_t>;  // 0: none
  bool has_room(const Limit& limit, std::size_t there, Fault fault) noexcept {
    const std::uint64_t most = limit.load(std::memory_order_relaxed);
    if (most == 0 || there < most) return true;
    counts->add(fault);
    log(Level::debug, "faults",
        [&] { return std::string(fault_name(fault)) + ": no more than " + std::to_string(most); });
    return false;
  }

  Context& context_;
  Limit max_qp_{0};
  Limit max_cq_{0};
  Limit max_mr_{0};
  Faults faults_;                       // guarded by Context::control
  std::atomic<std::uint64_t> left_{0};  // requests until the removal; 0: no removal
  std::atomic<bool> gone_{false};
};

// For an open soft device. Throws std::bad_alloc.
void set_faults(ibv_context* context, const Faults& faults);
std::shared_ptr<const FaultCounts> fault_counts(ibv_context* context) noexcept;

}  // namespace zerohop::softhca
