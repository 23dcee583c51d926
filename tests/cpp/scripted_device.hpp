// soft0 with events, errors and a port state that a test makes up. Its completions wake nobody:
// waiting threads poll every 100 ms.
#pragma once

#include <memory>
#include <vector>

#include "engine/core/device_choice.hpp"

namespace zerohop::testing {

class ScriptedDevice {
 public:
  ScriptedDevice();   // becomes the one behind open()
  ~ScriptedDevice();  // must outlive the device
  ScriptedDevice(const ScriptedDevice&) = delete;
  ScriptedDevice& operator=(const ScriptedDevice&) = delete;

  // For EndpointOptions::open_devices.
  std::vector<engine::DeviceChoice> open();

  void raise(ibv_event_type type, int port = 0);     // about a port or the device
  void raise_about_queue_pair(ibv_event_type type);  // the one made last
  void raise_about(ibv_qp& queue_pair, ibv_event_type type);

  // From now on:
  void fail_async_events(int error_number);
  void end_async_channel();  // EPOLLHUP
  void fail_completion_events(int error_number);
  void end_completion_channel();  // EPOLLHUP
  void refuse_arming();
  void refuse_polling();
  void take_port_down();
  // The operation is executed, but its completion reports an error.
  void fail_next_send(ibv_wc_status status = IBV_WC_RETRY_EXC_ERR);
  // Removes it from /sys, as the kernel does when a device is deleted.
  void remove();

  int looks() const;  // at either channel
  bool is_open() const;

  struct State;

 private:
  std::unique_ptr<State> state_;
};

}  // namespace zerohop::testing
