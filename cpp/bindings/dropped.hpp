// What close() has not waited for: large sends whose recv has not come, and what its timeout cut
// off.
#pragma once

#include <cstdint>
#include <memory>
#include <utility>
#include <vector>

#include "bindings/handles.hpp"

namespace zerohop::bindings {

struct Dropped {
  std::uint64_t sends = 0;
  std::uint64_t transfers = 0;  // under way at the deadline
};

Dropped dropped_of(const std::vector<std::shared_ptr<engine::Peer>>& peers);

// A RuntimeWarning of sends: data is lost, and nobody may ever ask the Transfers. Others go to the
// log: the program has chosen the timeout.
void tell_of_dropped(const Dropped& dropped);

template <typename Close>
void close_and_tell(const std::vector<std::shared_ptr<engine::Peer>>& peers, Close&& close) {
  const Dropped before = dropped_of(peers);
  without_gil(std::forward<Close>(close));
  const Dropped after = dropped_of(peers);
  tell_of_dropped({after.sends - before.sends, after.transfers - before.transfers});
}

}  // namespace zerohop::bindings
