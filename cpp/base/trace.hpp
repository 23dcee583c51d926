// Named time ranges for a tool that shows what a process does: NVTX, as used by Nsight Systems.
// When no tool listens, a range costs one pointer test.
#pragma once

#include <atomic>
#include <cstdint>

namespace zerohop::trace {

// Receives ranges from any thread; a range may end on another thread than it began on. The name is
// read during the call only; the payload is a number shown with it.
struct Tool {
  std::uint64_t (*begin)(const char* name, std::uint64_t payload) noexcept;
  void (*end)(std::uint64_t range) noexcept;
};

namespace detail {
inline std::atomic<const Tool*> listening{nullptr};
}  // namespace detail

// The tool that listens; null: none.
inline const Tool* tool() noexcept {
  return detail::listening.load(std::memory_order_acquire);  // pairs with listen()
}

// Sets the tool that receives ranges; null: none.
inline void listen(const Tool* tool) noexcept {
  detail::listening.store(tool, std::memory_order_release);
}

// Looks for a tool that the environment names, once per process, and listens with it.
void open();

// Ends with its owner at the latest. The tool gets no end in a child made by fork(), because the
// parent began the range and will end it, nor at process exit, when the tool may be gone.
class Range {
 public:
  Range() = default;
  ~Range() { end(); }
  Range(const Range&) = delete;
  Range& operator=(const Range&) = delete;

  // Call once.
  void begin(const Tool& tool, const char* name, std::uint64_t payload) noexcept;
  bool begun() const noexcept { return tool_ != nullptr; }
  void end() noexcept {
    if (tool_ != nullptr) finish();
  }

 private:
  void finish() noexcept;

  const Tool* tool_ = nullptr;  // null: not begun, or ended
  std::uint64_t id_ = 0;
  unsigned generation_ = 0;  // of the process (fork)
};

}  // namespace zerohop::trace
