#include "engine/stream/gpu_board.hpp"

namespace zerohop::engine {
namespace {

template <typename Word>
std::uint64_t address(const Word& word) {
  return reinterpret_cast<std::uintptr_t>(&word);
}

Extent extent_of(const Buffer& buffer) {
  const auto begin = reinterpret_cast<std::uintptr_t>(buffer.data());
  return {begin, begin + buffer.nbytes()};
}

}  // namespace

GpuBoard::GpuBoard(std::shared_ptr<Board> board, std::shared_ptr<NoteMirrors> mirrors)
    : board_(std::move(board)),
      mirrors_(std::move(mirrors)),
      pages_(std::make_shared<gpu::HostPages>(extent_of(board_->buffer()), board_,
                                              gpu::PageUse::write)) {}

GpuBoard::Reached GpuBoard::reach(const std::shared_ptr<const gpu::Device>& device) {
  mirrors_->settle(device);
  pages_->reach_all(device, Deadline::after(Deadline::Seconds{0}));  // nobody else locks them
  const BoardPages& pages = board_->pages();
  const NoteMirrors::Place mirrors = mirrors_->of(device);
  return {.notes = mirrors.address != 0 ? mirrors.address : address(pages.notes[0]),
          .mirrors = mirrors.address != 0,
          .words = address(pages.slots[0]),
          .lonely = address(pages.lonely),
          .kept = {pages_, mirrors.owner}};
}

}  // namespace zerohop::engine
