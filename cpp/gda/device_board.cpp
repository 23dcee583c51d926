#include "gda/device_board.hpp"

#include <utility>

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

DeviceBoard::DeviceBoard(std::unique_ptr<engine::SlotClaim> claim, const Deadline& deadline)
    : claim_(std::move(claim)),
      device_(claim_->device()->facts().device_name()),
      board_(make_board(*claim_)),
      memory_(claim_->device(), sizeof(board_),
              {claim_->reached().kept.begin(), claim_->reached().kept.end()}) {
  memory_.set(std::as_bytes(std::span(&board_, 1)), deadline);
}

}  // namespace zerohop::gda
