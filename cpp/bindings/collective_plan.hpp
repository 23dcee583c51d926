// Calls of collectives among a few ranks, with small arrays of the host: which bytes go where.
#pragma once

#include <pybind11/pybind11.h>

#include <cstdint>
#include <optional>
#include <vector>

#include "bindings/host_array.hpp"
#include "engine/collective/call_log.hpp"
#include "engine/collective/exchange.hpp"

namespace zerohop::bindings::collective {

// Where the call is made.
struct Place {
  engine::collective::Rank rank = 0;
  engine::collective::Rank size = 1;
  std::int32_t root = engine::collective::kNoRoot;
};

// The moves of one call, whose labels lack its number and its digest still, and the block that does
// not leave this rank. Its vectors keep their room for the next call.
class Plan {
 public:
  // False: something about them is unusual, or wrong: then the usual way has its say. target: what
  // is written, None of a broadcast; source: what is sent, of a broadcast the array. Either may be
  // None where a rank has none.
  bool make(const engine::Endpoint& endpoint, const Place& place, engine::collective::Kind kind,
            py::handle target, py::handle source);
  // The same of send_recv: to, from: no rank.
  bool make_pair(const engine::Endpoint& endpoint, const Place& place,
                 std::optional<engine::collective::Rank> to, py::handle source,
                 std::optional<engine::collective::Rank> from, py::handle target);
  // The program has its arrays back.
  void release() noexcept;

  std::vector<engine::collective::Move> sends, receives;
  const std::byte* own_source = nullptr;
  std::byte* own_target = nullptr;
  std::uint64_t own_nbytes = 0;
  engine::collective::Call call;  // as the log has it; the bytes only where all ranks have as many
  py::object out;                 // what is written
  const std::byte* out_begin = nullptr;

 private:
  using Rank = engine::collective::Rank;

  void begin(const Place& place, engine::collective::Kind kind);
  bool broadcast(py::handle array, const HostArray* flat);
  bool with_root(bool gathers, py::handle target, const HostArray* one, const HostArray* many);
  bool among_all(bool gathers, py::handle target, const HostArray* targets,
                 const HostArray* sources);
  void set_dtype(const DType& dtype);
  void set_out(py::handle array, const HostArray& flat);
  engine::collective::Move move(Rank rank, std::byte* bytes, std::uint64_t nbytes,
                                Rank part = 0) const;
  void keep_own(const std::byte* source, std::byte* target, std::uint64_t nbytes);
  template <typename Each>
  void others(Each&& each) const;

  Place place_;
  HostArray source_, target_;
  std::optional<DType> named_;  // whose name the call has
};

}  // namespace zerohop::bindings::collective
