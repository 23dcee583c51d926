// An Exchange of a World's collectives as Python holds it.
#pragma once

#include <pybind11/pybind11.h>

#include <cstdint>
#include <memory>
#include <optional>
#include <tuple>

#include "bindings/collective_plan.hpp"
#include "bindings/handles.hpp"
#include "engine/collective/exchange.hpp"

namespace zerohop::bindings::collective {

using LinesHandle = std::shared_ptr<engine::collective::Lines>;

struct ExchangeHandle {
  EndpointHandle endpoint;
  LinesHandle lines;
  std::unique_ptr<engine::collective::Exchange> exchange =
      std::make_unique<engine::collective::Exchange>(lines);
  std::unique_ptr<Plan> plan{};  // null: Python has made the moves
  std::uint64_t number = 0;      // of the call, among the collectives of all
};

// What has an Exchange stop: its name, the rank, and more.
using Stop = std::optional<std::tuple<const char*, engine::collective::Rank, py::object>>;

// slice: seconds to wait for each of what comes; last: for all. None: it is complete.
Stop run_exchange(ExchangeHandle& self, double slice, const Deadline& last);

}  // namespace zerohop::bindings::collective
