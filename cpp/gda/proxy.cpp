#include "gda/proxy.hpp"

#include <chrono>
#include <optional>
#include <thread>
#include <utility>

#include "base/fork.hpp"
#include "base/report.hpp"
#include "base/scarcity.hpp"
#include "base/spin_wait.hpp"

namespace zerohop::gda {
namespace {

using Clock = std::chrono::steady_clock;
using std::chrono::microseconds;

// For the destructor: transfers to a lost peer fail within 5 s.
constexpr std::chrono::seconds kPatienceAtEnd{6};

// Serves a kernel in the middle of an exchange at once.
constexpr microseconds kSpin{200};

// A kernel cannot wake the thread: how long to sleep when the ring has been idle for so long. An
// idle ring costs next to nothing.
microseconds pause_after(Clock::duration idle) {
  using namespace std::chrono_literals;
  if (idle < 10ms) return 20us;
  if (idle < 1s) return 100us;
  return 1000us;
}

}  // namespace

Proxy::Proxy(ProxyEnds ends) : generation_(fork_generation()), calls_(std::move(ends), ring_) {
  thread_ = start_thread("zh-proxy", [this] { run(); });
}

Proxy::~Proxy() {
  if (generation_ != fork_generation()) {
    new std::thread(std::move(thread_));  // the thread exists in the parent only: nothing to join
    return;
  }
  stopping_ = true;
  thread_.join();
}

void Proxy::run() noexcept {
  auto worked = Clock::now();
  std::optional<SpinWait> polling(kSpin);
  Clock::time_point asked_to_stop{};
  for (;;) {
    // Read first: entries posted before the stop request are still taken below.
    const bool stopping = stopping_;
    const bool took = calls_.take();
    const bool retired = calls_.retire();
    const auto now = Clock::now();
    if (took || retired) {
      worked = now;
      polling.emplace(kSpin);
    }
    if (stopping && !took && !calls_.busy()) return;
    if (stopping && asked_to_stop == Clock::time_point{}) asked_to_stop = now;
    if (stopping && now - asked_to_stop > kPatienceAtEnd) {
      return report("transfers that kernels posted do not finish: they are abandoned");
    }
    if (!took && !retired && !polling->pause()) {
      std::this_thread::sleep_for(pause_after(now - worked));
    }
  }
}

}  // namespace zerohop::gda
