#include "base/trace.hpp"

#include <cstdlib>

#include "base/fork.hpp"
#include "base/nvtx.hpp"

namespace zerohop::trace {
namespace {

bool look_for_tool() {
  const Tool* const found = open_nvtx();
  if (found == nullptr) return false;
  // Handlers registered last run first: this one runs before the destructors of the tool, which is
  // loaded now, and of everything made earlier that may still hold a range.
  std::atexit([] { listen(nullptr); });
  listen(found);
  return true;
}

}  // namespace

void open() { [[maybe_unused]] static const bool found = look_for_tool(); }

void Range::begin(const Tool& tool, const char* name, std::uint64_t payload) noexcept {
  tool_ = &tool;
  generation_ = fork_generation();
  id_ = tool.begin(name, payload);
}

void Range::finish() noexcept {
  if (generation_ == fork_generation() && trace::tool() == tool_) tool_->end(id_);
  tool_ = nullptr;
}

}  // namespace zerohop::trace
