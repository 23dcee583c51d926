#include "gda/device_board.hpp"

namespace zerohop::gda {
namespace {

device::Board make_board(const engine::SlotClaim& claim) {
  const auto& reached = claim.reached();
  return {.notes = reached.notes,
          .words = reached.words,
          .closed = reached.lonely,
          .first = claim.first(),
          .slots = claim.count()};
}

}  // namespace

DeviceBoard::DeviceBoard(const std::shared_ptr<const engine::SlotClaim>& claim,
                         const Deadline& deadline)
    : device_(claim->device()->facts().device_name()),
      board_(make_board(*claim)),
      memory_(claim->device(), sizeof(board_), {claim}) {
  memory_.set(std::as_bytes(std::span(&board_, 1)), deadline);
}

}  // namespace zerohop::gda
