// Collective calls among a few ranks with small host arrays: which bytes go where.
#pragma once

#include <pybind11/pybind11.h>

#include <cstdint>
#include <optional>
#include <vector>

#include "bindings/host_array.hpp"
#include "engine/collective/call_log.hpp"
#include "engine/collective/exchange.hpp"

namespace zerohop::bindings::collective {

// Which rank makes the call, and of how many.
struct Place {
  engine::collective::Rank rank = 0;
  engine::collective::Rank size = 1;
  std::int32_t root = engine::collective::kNoRoot;
};

// The moves of one call, whose labels still lack its number and its digest, and the block that
// stays on this rank. Its vectors keep their capacity for the next call.
class Plan {
 public:
  // False: something about the arguments is unusual or wrong; use the general path. target: the
  // array written, None for a broadcast; source: the array sent, for a broadcast the array. Either
  // may be None where a rank has none.
  bool make(const engine::Endpoint& endpoint, const Place& place, engine::collective::Kind kind,
            py::handle target, py::handle source);
  // The same for send_recv; to, from: ranks, or none.
  bool make_pair(const engine::Endpoint& endpoint, const Place& place,
                 std::optional<engine::collective::Rank> to, py::handle source,
                 std::optional<engine::collective::Rank> from, py::handle target);
  // Releases the program's arrays.
  void release() noexcept;

  std::vector<engine::collective::Move> sends, receives;
  const std::byte* own_source = nullptr;
  std::byte* own_target = nullptr;
  std::uint64_t own_nbytes = 0;
  engine::collective::Call call;  // for the log; bytes only if equal on all ranks
  py::object out;                 // the array written
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
  std::optional<DType> named_;  // the dtype named in the call
};

}  // namespace zerohop::bindings::collective
