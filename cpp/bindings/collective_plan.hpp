// Calls of collectives among a few ranks, with small arrays of the host: which bytes go where.
#pragma once

#include <pybind11/pybind11.h>

#include <cstdint>
#include <memory>
#include <optional>
#include <vector>

#include "bindings/handles.hpp"
#include "bindings/owner.hpp"
#include "engine/collective/call_log.hpp"
#include "engine/collective/exchange.hpp"

namespace zerohop::bindings::collective {

// The moves of one call, whose labels lack its number and its digest still, and the block that does
// not leave this rank.
struct Plan {
  std::vector<engine::collective::Move> sends, receives;
  const std::byte* own_source = nullptr;
  std::byte* own_target = nullptr;
  std::uint64_t own_nbytes = 0;
  engine::collective::Call call;  // as the log has it; the bytes only where all ranks have as many
  py::object out;                 // what is written
  std::uint64_t out_address = 0;
  std::vector<Owner> owners;  // of the bytes
};

// Where the call is made.
struct Place {
  engine::collective::Rank rank = 0;
  engine::collective::Rank size = 1;
  std::int32_t root = engine::collective::kNoRoot;
};

// Null: something about them is unusual, or wrong: then the usual way has its say. out: what is
// written; of a broadcast the array; array: what is sent; either may be None where a rank has none.
std::unique_ptr<Plan> plan_of(const engine::Endpoint& endpoint, const Place& place,
                              engine::collective::Kind kind, py::handle out, py::handle array);
// The same of send_recv: to, from: no rank.
std::unique_ptr<Plan> plan_of_pair(const engine::Endpoint& endpoint, const Place& place,
                                   std::optional<engine::collective::Rank> to, py::handle array,
                                   std::optional<engine::collective::Rank> from, py::handle out);

}  // namespace zerohop::bindings::collective
