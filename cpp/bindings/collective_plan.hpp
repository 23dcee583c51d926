// Collective calls with host arrays: what the program's arrays are to the engine.
#pragma once

#include <pybind11/pybind11.h>

#include <cstdint>
#include <memory>
#include <optional>
#include <utility>
#include <vector>

#include "bindings/host_array.hpp"
#include "engine/collective/call_log.hpp"
#include "engine/collective/exchange.hpp"
#include "engine/collective/schedule.hpp"

namespace zerohop::bindings::collective {

// Which rank makes the call, and of how many.
struct Place {
  engine::collective::Rank rank = 0;
  engine::collective::Rank size = 1;
  std::int32_t root = engine::collective::kNoRoot;
  engine::collective::Op op{};  // of a reduction
  double factor = 1;
  const engine::collective::Topology* topology = nullptr;
};

// One call, whose labels still lack its number and its digest. What it holds keeps its memory for
// the next call.
class Plan {
 public:
  // False: something about the arguments is unusual or wrong; use the general path. target: the
  // array written, None for a broadcast, and for a reduction in place; source: the array sent, for
  // a broadcast the array. Either may be None where a rank has none.
  bool make(const engine::Endpoint& endpoint, const Place& place, engine::collective::Kind kind,
            py::handle target, py::handle source);
  // The same for send_recv; to, from: ranks, or none.
  bool make_pair(const engine::Endpoint& endpoint, const Place& place,
                 std::optional<engine::collective::Rank> to, py::handle source,
                 std::optional<engine::collective::Rank> from, py::handle target);
  // The program's array of that number, or the room, which is plain bytes.
  py::object array(std::size_t number) const;
  // Releases the program's arrays.
  void release() noexcept;

  std::shared_ptr<engine::collective::Schedule> schedule;
  engine::collective::Labels labels;
  engine::collective::Call call;  // for the log; bytes only if equal on all ranks
  double factor = 1;              // of a reduction
  bool large = false;             // it moves blocks of more than EAGER bytes

 private:
  using Rank = engine::collective::Rank;

  void begin(const Place& place, engine::collective::Kind kind);
  void end();
  bool broadcast(py::handle array, const HostArray* flat);
  bool with_root(bool gathers, py::handle target, py::handle source, const HostArray* one,
                 const HostArray* many);
  bool among_all(bool gathers, py::handle target, py::handle source, const HostArray* targets,
                 const HostArray* sources);
  bool reduction(py::handle target, py::handle source, const HostArray* to, const HostArray* from);
  void note_block(std::uint64_t nbytes) noexcept { large |= nbytes > engine::collective::kEager; }
  engine::collective::DTypeName name(const DType& dtype);
  void set_dtype(const DType& dtype);
  // Its number among the arrays.
  std::size_t add(py::handle array, const HostArray& flat);
  // So many equal blocks of it.
  void add_blocks(std::vector<engine::collective::Block>& blocks, py::handle array,
                  const HostArray& flat, Rank count);
  std::byte* room_for(std::uint64_t nbytes);

  engine::collective::Terms terms_;
  engine::collective::Schedules schedules_;
  HostArray source_, target_;
  std::vector<py::object> arrays_;
  std::optional<DType> named_;  // the dtype named last
  engine::collective::DTypeName name_{};
  py::object room_;  // a bytearray
};

}  // namespace zerohop::bindings::collective
