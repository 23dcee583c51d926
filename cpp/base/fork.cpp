#include "base/fork.hpp"

#include <pthread.h>

#include <atomic>

namespace zerohop {
namespace {

std::atomic<unsigned> generation{0};

// pthread_atfork is the one hook that runs in the child before any of its code does.
[[maybe_unused]] const int generation_registered =
    ::pthread_atfork(nullptr, nullptr, [] { generation.fetch_add(1, std::memory_order_relaxed); });

}  // namespace

unsigned fork_generation() noexcept { return generation.load(std::memory_order_relaxed); }

}  // namespace zerohop
