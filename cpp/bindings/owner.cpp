#include "bindings/owner.hpp"

#include <atomic>

namespace zerohop::bindings {
namespace {

// A stack that is only ever pushed to or taken whole, so it has no ABA problem.
std::atomic<Held*> released{nullptr};
std::atomic<bool> drain_scheduled{false};
bool releases_later = false;  // guarded by the GIL

class HeldObject final : public Held {
 public:
  explicit HeldObject(py::handle object) : object_(object.inc_ref()) {}
  ~HeldObject() override { object_.dec_ref(); }

 private:
  py::handle object_;
};

// Unlike PyGILState_Check this stays right once the process has another interpreter.
bool holds_gil() noexcept {
  PyThreadState* mine = PyGILState_GetThisThreadState();
  return mine != nullptr && mine == py::detail::get_thread_state_unchecked();
}

// A release may run arbitrary Python code; a pending exception must survive that.
void release_now(Held* held) noexcept {
  const py::error_scope pending_error;
  delete held;
}

void drain() noexcept {
  // Clear the flag before taking the list: a later push then schedules its own drain. An exchange,
  // because it must read the value of the push that found the flag set, to see what that push
  // added.
  drain_scheduled.exchange(false);
  Held* held = released.exchange(nullptr, std::memory_order_acquire);
  while (held != nullptr) {
    Held* next = held->next_released;
    release_now(held);
    held = next;
  }
}

int drain_from_main_thread(void*) {
  drain();
  return 0;
}

void release(Held* held) noexcept {
  if (!Py_IsInitialized()) return;  // leaked on purpose: no interpreter is left
  if (holds_gil() && !releases_later) return release_now(held);
  held->next_released = released.load(std::memory_order_relaxed);
  // Release order: the drainer, which acquires, must see next_released.
  while (!released.compare_exchange_weak(held->next_released, held, std::memory_order_release,
                                         std::memory_order_relaxed)) {
  }
  if (drain_scheduled.exchange(true)) return;
  // The interpreter's queue may be full; then the next binding call or the next release drains.
  if (Py_AddPendingCall(drain_from_main_thread, nullptr) != 0) drain_scheduled = false;
}

}  // namespace

Owner make_owner(std::unique_ptr<Held> held) {
  return Owner(held.release(), [](void* pointer) { release(static_cast<Held*>(pointer)); });
}

Owner own_object(py::handle object) { return make_owner(std::make_unique<HeldObject>(object)); }

ReleaseLater::ReleaseLater() noexcept { releases_later = true; }
ReleaseLater::~ReleaseLater() { releases_later = false; }

void drain_released() noexcept {
  if (released.load(std::memory_order_relaxed) != nullptr) drain();
}

}  // namespace zerohop::bindings
