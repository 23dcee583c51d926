// Named ranges of time, for a tool that shows what a process does: NVTX, as Nsight Systems has it.
// Where none listens, a range costs the look at one pointer.
#pragma once

#include <atomic>
#include <cstdint>

namespace zerohop::trace {

// What takes ranges, called by any thread; a range may end on another than it began on. The name is
// read in the call only; the payload is a number that is shown with it.
struct Tool {
  std::uint64_t (*begin)(const char* name, std::uint64_t payload) noexcept;
  void (*end)(std::uint64_t range) noexcept;
};

namespace detail {
inline std::atomic<const Tool*> listening{nullptr};
}  // namespace detail

// The tool that listens; null: none.
inline const Tool* tool() noexcept {
  return detail::listening.load(std::memory_order_acquire);  // behind what made it ready
}

// From here on that one; null: none any more.
inline void listen(const Tool* tool) noexcept {
  detail::listening.store(tool, std::memory_order_release);
}

// Looks, once a process, for a tool that the environment names, and listens by it.
void open();

// Ends with its owner at the latest. Not told to the tool: an end in a child made by fork(), whose
// parent began the range and will end it, or one when the process exits and the tool may be gone.
class Range {
 public:
  Range() = default;
  ~Range() { end(); }
  Range(const Range&) = delete;
  Range& operator=(const Range&) = delete;

  // Once.
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
