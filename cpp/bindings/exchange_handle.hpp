// An Exchange of a World's collectives, held by Python.
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
  std::unique_ptr<Plan> plan{};  // null: Python has the arrays
  std::uint64_t number = 0;      // of the call, among the collectives of all ranks
  std::shared_ptr<engine::collective::Schedule> schedule{};  // what Python has still to begin
  engine::collective::Labels labels{};
};

// Why an Exchange stopped: a name, the rank, and details.
using Stop = std::optional<std::tuple<const char*, engine::collective::Rank, py::object>>;

// slice: seconds to wait for each arrival; last: for all. None: complete.
Stop run_exchange(ExchangeHandle& self, double slice, const Deadline& last);

}  // namespace zerohop::bindings::collective
