// close() does not wait for the recv of a large send: it tells of those that this dropped.
#pragma once

#include <cstdint>
#include <memory>
#include <utility>
#include <vector>

#include "bindings/handles.hpp"

namespace zerohop::bindings {

std::uint64_t dropped_sends(const std::vector<std::shared_ptr<engine::Peer>>& peers);

// A RuntimeWarning: data is lost, and nobody may ever ask the Transfers.
void warn_of_dropped_sends(std::uint64_t count);

template <typename Close>
void close_and_tell(const std::vector<std::shared_ptr<engine::Peer>>& peers, Close&& close) {
  const std::uint64_t before = dropped_sends(peers);
  without_gil(std::forward<Close>(close));
  const std::uint64_t count = dropped_sends(peers) - before;
  if (count > 0) warn_of_dropped_sends(count);
}

}  // namespace zerohop::bindings
