#include "base/fork.hpp"

#include <pthread.h>

#include <atomic>

namespace zerohop {
namespace {

std::atomic<unsigned> generation{0};

// pthread_atfork is the only hook that runs in the child before any other code there.
[[maybe_unused]] const int generation_registered =
    ::pthread_atfork(nullptr, nullptr, [] { generation.fetch_add(1, std::memory_order_relaxed); });

}  // namespace

unsigned fork_generation() noexcept { return generation.load(std::memory_order_relaxed); }

}  // namespace zerohop
