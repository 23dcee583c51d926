// Where the ranks of a World are, and the reductions that follow from it.
#include <pybind11/pybind11.h>
#include <pybind11/stl.h>

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "bindings/exchange_handle.hpp"
#include "bindings/gpu_reducer.hpp"
#include "bindings/handles.hpp"
#include "bindings/topics.hpp"
#include "engine/collective/staged_reduction.hpp"
#include "engine/collective/stages.hpp"

namespace zerohop::bindings {
namespace collective {
namespace {

using engine::collective::Algorithm;
using engine::collective::AlgorithmRow;
using engine::collective::kAnyBytes;
using engine::collective::Kind;
using engine::collective::kMostSlice;
using engine::collective::Rank;
using engine::collective::StagedReduction;
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
          py::arg("lines"), "Reductions over these lines go by it.")
      .def(
          "is_direct",
          [](const Topology& self, std::uint64_t nbytes) {
            return self.is_direct(self.algorithm(nbytes), nbytes);
          },
          py::arg("nbytes"), "Whether whole arrays go to all ranks that need them at once.")
      .def(
          "plan",
          [](const Topology& self, std::uint8_t kind, Rank rank, std::int32_t root,
             std::uint64_t nbytes) {
            const auto plan = engine::collective::plan_of(
                self,
                {.rank = rank,
                 .size = self.size(),
                 .nbytes = nbytes,
                 .has_result = root < 0 || rank == static_cast<Rank>(root),
                 .prefixes = static_cast<Kind>(kind) == Kind::scan,
                 .reduction = {.dtype = DType{kDTypeUInt, 8, 1}}},
                root);
            return std::tuple(plan.slice(), plan.chunk(), plan.room(), plan.partners());
          },
          py::arg("kind"), py::arg("rank"), py::arg("root"), py::arg("nbytes"), R"(
Of a reduction in stages: bytes of a slice, of a chunk, and of the room it needs, and the ranks to which this one has moves. root:
-1 for none.)");
}

using CallRow = std::tuple<std::uint8_t, std::int32_t, std::uint64_t, std::uint64_t, std::uint32_t>;
using ReductionRow = std::tuple<std::uint8_t, double>;
using ArrayRow = std::optional<std::tuple<std::uintptr_t, py::object>>;

StagedReduction::Array array_of(const ArrayRow& row) {
  if (!row) return {};
  const auto& [address, memory] = *row;
  StagedReduction::Array made{reinterpret_cast<std::byte*>(address)};
  if (const auto* found = find_memory(memory)) {
    made.memory = std::make_shared<const engine::Memory>(*found);
  }
  return made;
}

ExchangeHandle begin_reduction(const EndpointHandle& endpoint, const LinesHandle& lines, Rank rank,
                               const ReductionRow& reduction, const CallRow& call,
                               const std::string& dtype, const std::vector<ArrayRow>& arrays,
                               std::uint64_t nbytes, std::uint64_t before, bool proposes,
                               const std::optional<GpuReducerHandle>& gpu, double left) {
  const auto [op, factor] = reduction;
  const auto [kind, root, number, whole, digest] = call;
  if (op == 0 || op >= engine::collective::kOpNames.size()) {
    throw py::value_error("there is no such operation");
  }
  const Topology* const topology = lines->topology();
  if (topology == nullptr || arrays.size() != 3) throw py::value_error("nothing is known of hosts");
  ExchangeHandle made{endpoint, lines};
  made.exchange = std::make_unique<engine::collective::Exchange>(lines, proposes);
  made.plan = std::make_unique<Plan>();
  Plan& plan = *made.plan;
  StagedReduction::Arrays given{.from = array_of(arrays[0]),
                                .to = array_of(arrays[1]),
                                .room = array_of(arrays[2]),
                                .nbytes = nbytes,
                                .before = before};
  if (gpu) {
    const Deadline until = Deadline::after(Deadline::Seconds{left});
    given.by = std::make_shared<engine::collective::GpuCombiner>(gpu->reducer, until);
  }
  plan.make_stages({.rank = rank,
                    .size = topology->size(),
                    .root = root,
                    .op = static_cast<engine::collective::Op>(op),
                    .factor = factor,
                    .topology = topology},
                   static_cast<Kind>(kind), DType::parse(dtype), std::move(given), whole);
  plan.number({.sends = number, .receives = number, .digest = digest});
  made.exchange->begin(plan.sends, plan.receives, /*of_all=*/true);
  return made;
}

}  // namespace
}  // namespace collective

void bind_topology(py::module_& m) {
  using namespace collective;
  bind_topologies(m);
  m.def("begin_reduction", &begin_reduction, py::arg("endpoint"), py::arg("lines"), py::arg("rank"),
        py::arg("reduction"), py::arg("call"), py::arg("dtype"), py::arg("arrays"),
        py::arg("nbytes"), py::arg("before"), py::arg("proposes") = false,
        py::arg("gpu") = py::none(), py::arg("left") = 0.0, R"(
The part of a reduction in stages that the arrays are: an Exchange. reduction: op, factor. call: kind, root, number, bytes of
its array, digest. arrays: of the source, of the result (None: none on this rank) and of the room, each an address,
and its Memory or None: slices of more than EAGER bytes need them. Room is None where they do not. gpu: a GpuReducer, if all three are in
its GPU's memory; left: seconds that it may wait for the GPU. Only calls with slices of more than EAGER bytes take it. nbytes: of the arrays; before: those of
the call's array before them: parts of an array are of Topology.plan()'s chunks. Keep the arrays until it is complete.)");
}

}  // namespace zerohop::bindings
