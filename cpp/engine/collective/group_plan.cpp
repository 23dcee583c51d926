#include "engine/collective/group_plan.hpp"

#include <algorithm>
#include <array>
#include <bit>
#include <cstring>
#include <optional>
#include <stdexcept>
#include <string_view>

#include "base/crc32c.hpp"

namespace zerohop::engine::collective {
namespace {

using gpu::GroupCall;
using gpu::GroupType;
using gpu::kGroupThreads;

constexpr std::uint64_t kGrain = 16;  // bytes, of chunks and of slices

// By GroupType.
constexpr std::array<std::string_view, 15> kTypeNames{
    "bool",   "int8",    "int16",    "int32",   "int64",   "uint8",     "uint16",    "uint32",
    "uint64", "float16", "bfloat16", "float32", "float64", "complex64", "complex128"};

constexpr std::uint64_t up(std::uint64_t value, std::uint64_t to) {
  return (value + to - 1) / to * to;
}

constexpr std::uint32_t bit(std::uint32_t rank) { return std::uint32_t{1} << rank; }

class Planner {
 public:
  Planner(const GroupPlace& place, const GroupArrays& arrays, const GroupLimits& limits)
      : place_(place), arrays_(arrays), limits_(limits) {
    call_.rank = place.rank;
    call_.size = place.size;
    call_.op = static_cast<std::uint32_t>(arrays.reduction.op);
    call_.factor = arrays.reduction.factor;
    call_.type = type_of(arrays.reduction.dtype).value_or(GroupType::uint8);
    call_.code = to_code(arrays);
  }

  gpu::Group::Launch make() {
    set_lengths(arrays_.nbytes);
    switch (arrays_.kind) {
      case Kind::broadcast: broadcast(); break;
      case Kind::scatter: scatter(); break;
      case Kind::gather: gather(); break;
      case Kind::all_gather: all_gather(); break;
      case Kind::all_to_all: all_to_all(); break;
      case Kind::all_reduce: all_reduce(); break;
      case Kind::reduce: reduce(); break;
      case Kind::reduce_scatter: reduce_scatter(); break;
      case Kind::scan: scan(); break;
      default: throw std::invalid_argument("no kernel carries out that collective");
    }
    return finish();
  }

 private:
  std::uint32_t all() const { return bit(place_.size) - 1; }
  std::uint32_t others() const { return all() & ~bit(place_.rank); }
  bool is_root() const { return arrays_.root == static_cast<std::int32_t>(place_.rank); }
  std::uint32_t root() const { return static_cast<std::uint32_t>(arrays_.root); }
  std::uint64_t from(std::size_t rank = 0) const { return arrays_.from[rank]; }
  std::uint64_t to(std::size_t rank = 0) const { return arrays_.to[rank]; }

  void set_lengths(std::uint64_t nbytes) { std::fill_n(call_.lengths, place_.size, nbytes); }
  void send_all(std::uint32_t ranks, bool parts) {
    for (std::uint32_t rank = 0; rank < place_.size; ++rank) {
      if ((ranks & bit(rank)) != 0) call_.sends[rank] = from(parts ? rank : 0);
    }
  }
  void receive_all(std::uint32_t ranks) {
    call_.sources = ranks;
    for (std::uint32_t rank = 0; rank < place_.size; ++rank) {
      if ((ranks & bit(rank)) != 0) call_.receives[rank] = to(rank);
    }
  }

  void broadcast() {
    if (is_root()) {
      send_all(others(), false);
    } else {
      call_.sources = bit(root());
      call_.receives[root()] = to();
    }
  }
  void scatter() {
    if (is_root()) send_all(all(), true);
    call_.sources = bit(root());
    call_.receives[root()] = to();
  }
  void gather() {
    call_.sends[root()] = from();
    if (is_root()) receive_all(all());
  }
  void all_gather() {
    send_all(all(), false);
    receive_all(all());
  }
  void all_to_all() {
    send_all(all(), true);
    receive_all(all());
  }

  // Small blocks go whole to those that reduce them, others in slices: each rank reduces one, and
  // sends the result.
  void all_reduce() {
    if (goes_whole()) return reduce_whole(all());
    by_slices(others());
    for (std::uint32_t rank = 0; rank < place_.size; ++rank) {
      if (rank != place_.rank) call_.gathers[rank] = to() + slice(rank);
    }
    call_.result = to() + slice(place_.rank);
  }
  void reduce() {
    if (goes_whole()) return reduce_whole(bit(root()));
    by_slices(others() & bit(root()));
    if (!is_root()) return;
    for (std::uint32_t rank = 0; rank < place_.size; ++rank) {
      if (rank != place_.rank) call_.gathers[rank] = to() + slice(rank);
    }
    call_.result = to() + slice(place_.rank);
  }
  void reduce_whole(std::uint32_t targets) {
    send_all(targets | bit(place_.rank), false);
    if ((targets & bit(place_.rank)) == 0) return;
    call_.sources = all();
    call_.result = to();
  }
  void by_slices(std::uint32_t audience) {
    for (std::uint32_t rank = 0; rank < place_.size; ++rank) {
      call_.sends[rank] = from() + slice(rank);
      call_.lengths[rank] = slice(rank + 1) - slice(rank);
    }
    call_.sources = all();
    call_.audience = audience;
  }
  // Where the slice of that rank begins.
  std::uint64_t slice(std::uint32_t rank) const {
    const std::uint64_t length = up((arrays_.nbytes + place_.size - 1) / place_.size, kGrain);
    return std::min(rank * length, arrays_.nbytes);
  }

  void reduce_scatter() {
    send_all(all(), true);
    call_.sources = all();
    call_.result = to();
  }
  void scan() {
    for (std::uint32_t rank = place_.rank; rank < place_.size; ++rank) call_.sends[rank] = from();
    call_.sources = bit(place_.rank + 1) - 1;
    call_.result = to();
  }

  bool packets_hold(std::uint64_t nbytes) const {
    const bool fits = call_.op == 0 || arrays_.reduction.dtype.itemsize() <= sizeof(std::uint64_t);
    return fits && nbytes <= limits_.packet_bytes;
  }
  bool goes_whole() const {
    return packets_hold(arrays_.nbytes * (place_.size - 1)) && packets_hold(arrays_.nbytes);
  }

  gpu::Group::Launch finish() {
    const std::uint64_t longest = *std::max_element(call_.lengths, call_.lengths + place_.size);
    gpu::Group::Launch launch{.call = call_};
    launch.by_packets = !sliced() && packets_hold(longest);
    if (launch.by_packets) {
      launch.blocks = blocks_for(longest, kGroupThreads * sizeof(std::uint64_t), limits_.blocks);
    } else {
      launch.blocks = blocks_for(longest, limits_.least_chunk, limits_.blocks);
      launch.call.chunk =
          std::min(up((longest + launch.blocks - 1) / launch.blocks, kGrain), limits_.chunk_bytes);
      // A block without a chunk would take no part in a call in place, and its share would be left.
      launch.blocks = blocks_for(longest, std::max(launch.call.chunk, kGrain), launch.blocks);
    }
    launch.call.hash = hash(launch);
    return launch;
  }
  // Also where this rank's result goes nowhere, so that all ranks decide alike.
  bool sliced() const {
    return (arrays_.kind == Kind::all_reduce || arrays_.kind == Kind::reduce) && !goes_whole();
  }
  static unsigned blocks_for(std::uint64_t nbytes, std::uint64_t each, unsigned most) {
    return static_cast<unsigned>(std::clamp<std::uint64_t>((nbytes + each - 1) / each, 1, most));
  }
  std::uint32_t hash(const gpu::Group::Launch& launch) const {
    const std::array<std::uint64_t, 3> words{call_.code, std::bit_cast<std::uint64_t>(call_.factor),
                                             launch.blocks};
    return crc32c(std::as_bytes(std::span(words)));
  }

  const GroupPlace place_;
  const GroupArrays& arrays_;
  const GroupLimits& limits_;
  GroupCall call_;
};

// The fields of a code, from the lowest bit.
constexpr unsigned kKindBits = 5, kOpBits = 4, kTypeBits = 5, kRootBits = 4;

}  // namespace

std::optional<gpu::GroupType> type_of(const DType& dtype) {
  const std::string name = dtype.name();
  const auto found = std::ranges::find(kTypeNames, name);
  if (found == kTypeNames.end()) return std::nullopt;
  return static_cast<GroupType>(found - kTypeNames.begin());
}

gpu::Group::Launch plan(const GroupPlace& place, const GroupArrays& arrays,
                        const GroupLimits& limits) {
  return Planner(place, arrays, limits).make();
}

std::uint64_t to_code(const GroupArrays& arrays) {
  const auto type = type_of(arrays.reduction.dtype);
  std::uint64_t code = arrays.nbytes;
  code = code << kRootBits | static_cast<std::uint64_t>(arrays.root + 1);
  code = code << kTypeBits | (type ? static_cast<std::uint64_t>(*type) + 1 : 0);
  code = code << kOpBits | static_cast<std::uint64_t>(arrays.reduction.op);
  return code << kKindBits | static_cast<std::uint64_t>(arrays.kind);
}

std::string text_of_code(std::uint64_t code) {
  const auto take = [&](unsigned bits) {
    const std::uint64_t value = code & ((std::uint64_t{1} << bits) - 1);
    code >>= bits;
    return static_cast<std::size_t>(value);
  };
  const std::size_t kind = take(kKindBits), op = take(kOpBits), type = take(kTypeBits);
  const std::size_t root = take(kRootBits);
  if (kind >= kKindNames.size() || op >= kOpNames.size() || type > kTypeNames.size()) {
    return "something unknown";
  }
  std::string text(kKindNames[kind]);
  if (op != 0) text += ", " + std::string(kOpNames[op]) + ",";
  if (root != 0) text += " (root " + std::to_string(root - 1) + ")";
  return text + " of " + std::to_string(code) + " bytes of " +
         (type == 0 ? "other elements" : std::string(kTypeNames[type - 1]));
}

}  // namespace zerohop::engine::collective
