// Where the ranks of a World are, and the reductions that follow from it.
#include <pybind11/pybind11.h>
#include <pybind11/stl.h>

#include <cstdint>
#include <optional>
#include <tuple>
#include <utility>
#include <vector>

#include "bindings/exchange_handle.hpp"
#include "bindings/topics.hpp"
#include "engine/collective/staged_reduction.hpp"
#include "engine/collective/stages.hpp"

namespace zerohop::bindings {
namespace collective {
namespace {

using engine::collective::Algorithm;
using engine::collective::AlgorithmRow;
using engine::collective::kAnyBytes;
using engine::collective::kMostSlice;
using engine::collective::Topology;

using Most = std::optional<std::uint64_t>;
using Row = std::tuple<Most, Most, Most, bool, bool, bool, std::uint64_t>;

AlgorithmRow row_of(const Row& row) {
  const auto& [hosts, ranks, nbytes, by_host, pairs, whole, slice] = row;
  if (slice == 0 || slice % 16 != 0 || slice > kMostSlice) {
    throw py::value_error("the slice of an algorithm must be a multiple of 16 bytes, up to 64 MiB");
  }
  return {.hosts = hosts.value_or(kAnyBytes),
          .ranks = ranks.value_or(kAnyBytes),
          .nbytes = nbytes.value_or(kAnyBytes),
          .algorithm = {.by_host = by_host, .pairs = pairs, .whole = whole, .slice = slice}};
}

void bind_topologies(py::module_& m) {
  py::class_<Topology>(m, "Topology", R"(
Where the ranks of a World are, and how its reductions go. host_of: by rank, any number for each host. table: rows of (hosts,
ranks, nbytes: apply up to so many, None: to any; by_host, pairs, whole, slice: see zerohop.collectives.table); the first that
applies counts. Raises ValueError: there is none for some sizes.)")
      .def(py::init([](const std::vector<std::uint32_t>& host_of, const std::vector<Row>& table) {
             std::vector<AlgorithmRow> rows;
             for (const Row& row : table) rows.push_back(row_of(row));
             return Topology(host_of, std::move(rows));
           }),
           py::arg("host_of"), py::arg("table"))
      .def_property_readonly("hosts", &Topology::hosts)
      .def(
          "settle",
          [](const Topology& self, const LinesHandle& lines) { lines->set_topology(self); },
          py::arg("lines"), "Reductions over these lines go by it.");
}

}  // namespace
}  // namespace collective

void bind_topology(py::module_& m) { collective::bind_topologies(m); }

}  // namespace zerohop::bindings
