// What close() has not waited for: large sends without a matching recv, and transfers cut off by
// its timeout.
#pragma once

#include <cstdint>
#include <memory>
#include <utility>
#include <vector>

#include "bindings/handles.hpp"

namespace zerohop::bindings {

struct Dropped {
  std::uint64_t sends = 0;
  std::uint64_t transfers = 0;  // in progress at the deadline
};

Dropped dropped_of(const std::vector<std::shared_ptr<engine::Peer>>& peers);

// Sends become a RuntimeWarning: data is lost, and nobody may ever check the Transfers. The rest is
// logged: the program has chosen the timeout.
void tell_of_dropped(const Dropped& dropped);

template <typename Close>
void close_and_tell(const std::vector<std::shared_ptr<engine::Peer>>& peers, Close&& close) {
  const Dropped before = dropped_of(peers);
  without_gil(std::forward<Close>(close));
  const Dropped after = dropped_of(peers);
  tell_of_dropped({after.sends - before.sends, after.transfers - before.transfers});
}

}  // namespace zerohop::bindings
