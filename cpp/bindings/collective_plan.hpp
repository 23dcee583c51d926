// Collective calls with host arrays: which bytes go where. Small arrays among a few ranks, and
// reductions in stages.
#pragma once

#include <pybind11/pybind11.h>

#include <cstdint>
#include <optional>
#include <span>
#include <utility>
#include <vector>

#include "bindings/host_array.hpp"
#include "engine/collective/call_log.hpp"
#include "engine/collective/exchange.hpp"
#include "engine/collective/staged_reduction.hpp"

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

// The moves of one call, whose labels still lack its number and its digest, and what remains to be
// done on this rank once they are complete. Its vectors keep their capacity for the next call.
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
  // A reduction in stages, of arrays that the caller keeps. whole: bytes of the call's array, of
  // which these are a part. Without room in the arrays, which are then not registered, the Plan has
  // its own.
  void make_stages(const Place& place, engine::collective::Kind kind, const DType& dtype,
                   engine::collective::StagedReduction::Arrays arrays, std::uint64_t whole);
  // The call's identification for the other ranks.
  struct Number {
    std::uint64_t sends = 0, receives = 0;
    std::uint32_t digest = 0;
    std::uint64_t of_all = 0;
  };
  void number(const Number& number);
  // Once the moves are complete: true if others follow, which are then in place. arrived: the
  // receives among them.
  bool next(std::span<const engine::collective::Move> arrived);
  // The array that a move writes to, and the offset in it. It may be plain bytes.
  std::pair<py::object, std::uint64_t> place(const engine::collective::Move& receive) const;
  const DType& dtype() const { return *named_; }
  // The ranks of later moves.
  const std::vector<engine::collective::Rank>& partners() const noexcept { return partners_; }
  // Releases the program's arrays.
  void release() noexcept;

  std::vector<engine::collective::Move> sends, receives;
  engine::collective::Call call;  // for the log; bytes only if equal on all ranks
  double factor = 1;              // of a reduction

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
  bool reduction(py::handle target, py::handle source, const HostArray* to, const HostArray* from);
  void begin_stages(std::uint64_t whole, engine::collective::StagedReduction::Arrays arrays);
  std::byte* room_for(std::uint64_t nbytes);
  // Copies this rank's own block, or reduces what has arrived.
  void finish(std::span<const engine::collective::Move> arrived);
  template <typename Each>
  void others(Each&& each) const;

  Place place_;
  Number number_{};
  py::object out_;  // the array written
  const std::byte* out_begin_ = nullptr;
  HostArray source_, target_;
  std::optional<DType> named_;  // the dtype named in the call
  const std::byte* own_source_ = nullptr;
  std::byte* own_target_ = nullptr;
  std::uint64_t own_nbytes_ = 0;
  std::vector<const std::byte*> inputs_;  // of a reduction, in the order of ranks
  const std::byte* own_input_ = nullptr;
  std::byte* reduced_ = nullptr;  // null: none on this rank
  std::uint64_t block_nbytes_ = 0;
  py::object room_;  // a bytearray
  bool in_stages_ = false;
  engine::collective::StagedReduction stages_;
  std::vector<engine::collective::Rank> partners_;
};

}  // namespace zerohop::bindings::collective
