#include <iterator>
#include <utility>

#include "engine/notify/board.hpp"
#include "gda/opened_way.hpp"

namespace zerohop::gda {

OpenedWay open_mapped(const QueueArrays& arrays, engine::Hearers hearers,
                      const std::optional<double>& timeout) {
  engine::KernelReach reach = arrays.peer->kernels().mapped(
      {&arrays.local, &arrays.remote}, hearers, timeout.value_or(arrays.endpoint.timeout()));
  OpenedWay opened{
      .queue = {.local = arrays.local.layout().address,
                .local_nbytes = arrays.local.layout().nbytes(),
                .remote = reach.remote,
                .remote_nbytes = arrays.remote.layout.nbytes(),
                .mirrors = reach.notes.mirrors,
                .notes = reach.notes.notes,
                .writer = reach.notes.writer,
                .slots = engine::Board::kSlots,
                .rights = (reach.puts ? device::kPut : 0U) | (reach.gets ? device::kGet : 0U) |
                          (reach.puts && reach.atomics ? device::kAtomics : 0U),
                .way = device::Way::mapped},
      .route = std::move(reach.route),
      .device = std::move(reach.device),
      .kept = std::move(reach.kept)};
  opened.kept.insert(opened.kept.end(), std::make_move_iterator(reach.notes.kept.begin()),
                     std::make_move_iterator(reach.notes.kept.end()));
  return opened;
}

}  // namespace zerohop::gda
