// Collectives that kernels of the ranks' GPUs carry out.
#include <pybind11/pybind11.h>
#include <pybind11/stl.h>

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "bindings/demands.hpp"
#include "bindings/handles.hpp"
#include "bindings/topics.hpp"
#include "engine/collective/gpu_group.hpp"

namespace zerohop::bindings {
namespace {

using engine::collective::GpuGroup;
using engine::collective::GroupArrays;
using engine::collective::GroupPart;
using engine::collective::Kind;
using engine::collective::Op;
using Addresses = std::vector<std::uint64_t>;

struct GroupPartHandle {
  std::shared_ptr<GroupPart> part;
};

struct GpuGroupHandle {
  EndpointHandle endpoint;
  std::shared_ptr<GpuGroup> group;
};

GpuGroupHandle make_group(const EndpointHandle& endpoint, std::uint32_t rank, std::uint32_t size,
                          const engine::Memory& arena, const std::string& name, double timeout) {
  auto polling = endpoint->polling();
  return {endpoint, waiting(*endpoint, timeout, [&](const Deadline& deadline) {
            return std::make_shared<GpuGroup>(
                GpuGroup::Host{std::move(polling.poller), std::move(polling.look)},
                engine::collective::GroupPlace{rank, size}, arena, name, deadline);
          })};
}

std::optional<TransferHandle> call(const GpuGroupHandle& self, std::uint8_t kind, std::int32_t root,
                                   std::uint8_t op, double factor, const std::string& dtype,
                                   std::uint64_t nbytes, const Addresses& from, const Addresses& to,
                                   const py::object& stream, double timeout,
                                   const std::optional<GroupPartHandle>& in) {
  const GroupArrays arrays{.kind = static_cast<Kind>(kind),
                           .root = root,
                           .reduction = {static_cast<Op>(op), DType::parse(dtype), factor},
                           .nbytes = nbytes,
                           .from = from,
                           .to = to};
  const auto handle = demand_stream(stream);
  const GroupPart* const part = in ? in->part.get() : nullptr;
  auto transfer = without_gil([&] { return self.group->call(arrays, handle, timeout, part); });
  if (!transfer) return std::nullopt;
  return TransferHandle{self.endpoint, std::move(transfer), ResultKind::none, {"collective", ""}};
}

}  // namespace

void bind_gpu_group(py::module_& m) {
  py::class_<GroupPartHandle>(m, "GroupPart", R"(
Registered GPU memory of each rank of a GpuGroup, which the kernels of this one reach. memory: this rank's. Raises
RegistrationError.)")
      .def(py::init([](std::uint32_t rank, std::uint32_t size, const engine::Memory& memory) {
             return GroupPartHandle{
                 std::make_shared<GroupPart>(engine::collective::GroupPlace{rank, size}, memory)};
           }),
           py::arg("rank"), py::arg("size"), py::arg("memory"))
      .def(
          "meet",
          [](const GroupPartHandle& self, std::uint32_t rank, const PeerHandle& peer,
             const engine::RemoteMemory& memory, double timeout) {
            without_gil([&] { self.part->meet(rank, peer.peer, memory, timeout); });
          },
          py::arg("rank"), py::arg("peer"), py::arg("memory"), py::arg("timeout"),
          "Maps the memory of another rank. Raises RouteUnavailable, CudaError, PeerLost.");
  py::class_<GpuGroupHandle> group(m, "GpuGroup", R"(
The ranks of a World as GPUs of one host, whose kernels carry out collectives; see zerohop.collectives.gpu_group.
arena: NBYTES[size] bytes of this rank's GPU memory. Raises RouteUnavailable, CudaError, TransferTimeout.)");
  group
      .def(py::init(&make_group), py::arg("endpoint"), py::arg("rank"), py::arg("size"),
           py::arg("arena"), py::arg("name"), py::arg("timeout"))
      .def(
          "meet",
          [](const GpuGroupHandle& self, std::uint32_t rank, const PeerHandle& peer,
             const engine::RemoteMemory& arena, double timeout) {
            without_gil([&] { self.group->meet(rank, peer.peer, arena, timeout); });
          },
          py::arg("rank"), py::arg("peer"), py::arg("arena"), py::arg("timeout"),
          "Maps the arena of another rank. Raises RouteUnavailable, CudaError, PeerLost.")
      .def("call", &call, py::arg("kind"), py::arg("root"), py::arg("op"), py::arg("factor"),
           py::arg("dtype"), py::arg("nbytes"), py::arg("sources"), py::arg("targets"),
           py::arg("stream"), py::arg("timeout"), py::arg("part") = py::none(), R"(
Enqueues a collective. kind, op: as in CallLog. nbytes: of a block. sources, targets: GPU addresses of the block
sent, or of one for each rank, and of the block that comes. timeout: seconds that the kernel waits for other
ranks. part: where the arrays may lie. Returns a Transfer; None: the call has become part of the graph into which `stream` is captured.)")
      .def(
          "end",
          [](const GpuGroupHandle& self, const std::string& reason) {
            without_gil([&] { self.group->end(reason); });
          },
          py::arg("reason"), "Ends kernels that wait, and refuses later calls.");
  py::list nbytes, packet_bytes;
  for (std::uint32_t size = 0; size <= gpu::kGroupRanks; ++size) {
    nbytes.append(size == 0 ? 0 : GpuGroup::nbytes_for(size));
    packet_bytes.append(size == 0 ? 0 : gpu::GroupArena{size}.packet_bytes());
  }
  group.attr("NBYTES") = py::tuple(nbytes);
  // Larger blocks of arrays in registered memory go in place.
  group.attr("PACKET_BYTES") = py::tuple(packet_bytes);
  group.attr("RANKS") = gpu::kGroupRanks;
  py::list left;  // by rank: where in the arenas of the others it stores 32 bits, not 0, once it
                  // has left
  for (unsigned rank = 0; rank < gpu::kGroupRanks; ++rank) {
    left.append(gpu::GroupArena::left(rank));
  }
  group.attr("LEFT") = py::tuple(left);
}

}  // namespace zerohop::bindings
