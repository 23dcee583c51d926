#include "engine/stream/gpu_board.hpp"

namespace zerohop::engine {
namespace {

template <typename Word>
std::uint64_t address(const Word& word) {
  return reinterpret_cast<std::uintptr_t>(&word);
}

}  // namespace

std::shared_ptr<const void> GpuBoard::pages_of(const std::shared_ptr<const gpu::Device>& device) {
  const std::lock_guard lock(mutex_);
  if (!pages_ || !device->facts().reaches_registered) {
    const Buffer& buffer = board_->buffer();
    pages_ = std::make_shared<const gpu::RegisteredPages>(device, board_, buffer.data(),
                                                          buffer.nbytes(), "a notification board");
  }
  return pages_;
}

GpuBoard::Reached GpuBoard::reach(const std::shared_ptr<const gpu::Device>& device) {
  mirrors_->settle(device);
  const BoardPages& pages = board_->pages();
  const NoteMirrors::Place mirrors = mirrors_->of(device);
  return {.notes = mirrors.address != 0 ? mirrors.address : address(pages.notes[0]),
          .mirrors = mirrors.address != 0,
          .words = address(pages.slots[0]),
          .lonely = address(pages.lonely),
          .kept = {pages_of(device), mirrors.owner}};
}

}  // namespace zerohop::engine
