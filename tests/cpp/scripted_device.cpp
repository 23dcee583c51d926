#include "scripted_device.hpp"

#include <fcntl.h>
#include <unistd.h>

#include <array>
#include <atomic>
#include <cerrno>
#include <cstring>
#include <deque>
#include <mutex>
#include <stdexcept>
#include <utility>

#include "base/unique_fd.hpp"
#include "softhca/softhca.hpp"

namespace zerohop::testing {
namespace {

const driver::Verbs& soft() { return *softhca::verbs(); }

// A channel that is readable while it holds bytes, and at end of stream once the other end is
// closed.
struct Channel {
  UniqueFd out;  // what the device's user watches
  UniqueFd in;

  static Channel make() {
    std::array<int, 2> ends{};
    if (::pipe2(ends.data(), O_CLOEXEC | O_NONBLOCK) != 0) throw std::runtime_error("pipe2");
    return {UniqueFd(ends[0]), UniqueFd(ends[1])};
  }
  void fill() const {
    const char byte = 1;
    if (::write(in.get(), &byte, 1) != 1) throw std::runtime_error("write");
  }
  void take() const {
    char byte = 0;
    (void)!::read(out.get(), &byte, 1);
  }
};

}  // namespace

struct ScriptedDevice::State {
  std::mutex mutex;  // guards the next two
  std::deque<ibv_async_event> events;
  ibv_qp* last_queue_pair = nullptr;
  Channel async = Channel::make();
  Channel completions = Channel::make();
  ibv_device* own_device = nullptr;
  int own_async_fd = -1;
  int own_channel_fd = -1;
  ibv_device device{};  // this context's own, with its directory in /sys
  decltype(ibv_context_ops::poll_cq) own_poll = nullptr;
  decltype(ibv_context_ops::req_notify_cq) own_arm = nullptr;
  std::atomic<int> async_error = 0;
  std::atomic<int> completion_error = 0;
  std::atomic<bool> no_arming = false;
  std::atomic<bool> no_polling = false;
  std::atomic<bool> port_down = false;
  std::atomic<ibv_wc_status> send_fails = IBV_WC_SUCCESS;  // success: sends do not fail
  std::atomic<int> looks = 0;
  std::atomic<bool> open = false;
};

namespace {

ScriptedDevice::State* state = nullptr;  // the table's functions have no context argument

int get_async_event(ibv_context*, ibv_async_event* event) {
  ++state->looks;
  state->async.take();
  if (const int error = state->async_error; error != 0) {
    state->async.fill();  // a broken channel stays readable
    errno = error;
    return -1;
  }
  const std::lock_guard lock(state->mutex);
  errno = EAGAIN;
  if (state->events.empty()) return -1;
  *event = state->events.front();
  state->events.pop_front();
  return 0;
}
void ack_async_event(ibv_async_event*) {}  // soft0 does not know them

int get_cq_event(ibv_comp_channel* channel, ibv_cq** cq, void** context) {
  ++state->looks;
  const int error = state->completion_error;
  if (error == 0) return soft().get_cq_event(channel, cq, context);
  errno = error;
  return -1;
}
ibv_comp_channel* create_comp_channel(ibv_context* context) {
  ibv_comp_channel* channel = soft().create_comp_channel(context);
  if (channel == nullptr) return nullptr;
  ::fcntl(channel->fd, F_SETFL, O_NONBLOCK);
  state->own_channel_fd = std::exchange(channel->fd, state->completions.out.get());
  return channel;
}
int destroy_comp_channel(ibv_comp_channel* channel) {
  channel->fd = state->own_channel_fd;
  return soft().destroy_comp_channel(channel);
}
int poll_cq(ibv_cq* cq, int most, ibv_wc* completions) {
  if (state->no_polling) return -1;
  const int count = state->own_poll(cq, most, completions);
  for (int i = 0; i < count; ++i) {
    const bool sent =
        completions[i].status == IBV_WC_SUCCESS && completions[i].opcode == IBV_WC_RDMA_WRITE;
    if (!sent) continue;
    const ibv_wc_status failure = state->send_fails.exchange(IBV_WC_SUCCESS);
    if (failure != IBV_WC_SUCCESS) completions[i].status = failure;
  }
  return count;
}
int req_notify_cq(ibv_cq* cq, int solicited) {
  return state->no_arming ? EIO : state->own_arm(cq, solicited);
}

ibv_context* open_device(ibv_device* device) {
  ibv_context* context = soft().open_device(device);
  if (context == nullptr) return nullptr;
  state->open = true;
  state->device = *context->device;
  state->own_device = std::exchange(context->device, &state->device);
  state->own_async_fd = std::exchange(context->async_fd, state->async.out.get());
  state->own_poll = std::exchange(context->ops.poll_cq, &poll_cq);
  state->own_arm = std::exchange(context->ops.req_notify_cq, &req_notify_cq);
  return context;
}
int close_device(ibv_context* context) {
  context->async_fd = state->own_async_fd;
  context->device = state->own_device;
  state->open = false;
  return soft().close_device(context);
}
ibv_qp* create_qp(ibv_pd* domain, ibv_qp_init_attr* attributes) {
  ibv_qp* made = soft().create_qp(domain, attributes);
  const std::lock_guard lock(state->mutex);
  state->last_queue_pair = made;
  return made;
}
int query_port(ibv_context* context, std::uint8_t port, ibv_port_attr* attributes) {
  const int error = soft().query_port(context, port, attributes);
  if (state->port_down) attributes->state = IBV_PORT_DOWN;
  return error;
}

}  // namespace

ScriptedDevice::ScriptedDevice() : state_(std::make_unique<State>()) { state = state_.get(); }

ScriptedDevice::~ScriptedDevice() { state = nullptr; }

std::vector<engine::DeviceChoice> ScriptedDevice::open() {
  auto table = std::make_shared<driver::Verbs>(soft());
  table->open_device = open_device;
  table->close_device = close_device;
  table->get_async_event = get_async_event;
  table->ack_async_event = ack_async_event;
  table->create_comp_channel = create_comp_channel;
  table->destroy_comp_channel = destroy_comp_channel;
  table->get_cq_event = get_cq_event;
  table->create_qp = create_qp;
  table->query_port = query_port;
  return {{rdma::Device::open(std::move(table), "soft0"), "a test scripts it"}};
}

void ScriptedDevice::raise(ibv_event_type type, int port) {
  {
    const std::lock_guard lock(state_->mutex);
    ibv_async_event& event = state_->events.emplace_back();
    event.event_type = type;
    event.element.port_num = port;
  }
  state_->async.fill();
}

void ScriptedDevice::raise_about_queue_pair(ibv_event_type type) {
  raise_about(*state_->last_queue_pair, type);
}

void ScriptedDevice::raise_about(ibv_qp& queue_pair, ibv_event_type type) {
  {
    const std::lock_guard lock(state_->mutex);
    ibv_async_event& event = state_->events.emplace_back();
    event.event_type = type;
    event.element.qp = &queue_pair;
  }
  state_->async.fill();
}

void ScriptedDevice::fail_async_events(int error_number) {
  state_->async_error = error_number;
  state_->async.fill();
}
void ScriptedDevice::end_async_channel() { state_->async.in.reset(); }
void ScriptedDevice::fail_completion_events(int error_number) {
  state_->completion_error = error_number;
  state_->completions.fill();
}
void ScriptedDevice::end_completion_channel() { state_->completions.in.reset(); }
void ScriptedDevice::refuse_arming() { state_->no_arming = true; }
void ScriptedDevice::refuse_polling() { state_->no_polling = true; }
void ScriptedDevice::take_port_down() { state_->port_down = true; }
void ScriptedDevice::fail_next_send(ibv_wc_status status) { state_->send_fails = status; }
void ScriptedDevice::remove() {
  std::strcpy(state_->device.dev_path, "/sys/class/infiniband_verbs/was here");
}
int ScriptedDevice::looks() const { return state_->looks; }
bool ScriptedDevice::is_open() const { return state_->open; }

}  // namespace zerohop::testing
