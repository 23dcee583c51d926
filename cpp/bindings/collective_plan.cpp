#include "bindings/collective_plan.hpp"

#include <algorithm>
#include <cstddef>
#include <cstring>
#include <utility>

#include "bindings/collective_names.hpp"

namespace zerohop::bindings::collective {
namespace {

using engine::collective::kAnyBytes;
using engine::collective::kEager;
using engine::collective::kFew;
using engine::collective::Kind;
using engine::collective::Move;
using OfRank = engine::collective::Rank;

// Block `number` of `count` equal ones; all of it if the array is not divided.
struct Cut {
  std::byte* begin = nullptr;
  std::uint64_t nbytes = 0;

  std::byte* at(OfRank number) const noexcept { return begin + number * nbytes; }
};

std::optional<Cut> cut(const HostArray& flat, OfRank count) {
  if (count > 1 && (flat.rows() < count || flat.rows() % count != 0)) return std::nullopt;
  return Cut{flat.begin(), flat.nbytes() / count};
}

bool apart(const HostArray& one, const HostArray& other) {
  return one.end() <= other.begin() || other.end() <= one.begin();
}

}  // namespace

void Plan::begin(const Place& place, Kind kind) {
  place_ = place;
  sends.clear();
  receives.clear();
  sends.reserve(place.size);
  receives.reserve(place.size);
  own_nbytes_ = 0;
  reduced_ = nullptr;
  in_stages_ = false;
  partners_.clear();
  call.kind = kind;
  call.op = place.op;
  call.root = place.root;
  call.nbytes = kAnyBytes;
}

void Plan::release() noexcept {
  source_.release();
  target_.release();
  out_ = py::object();
}

void Plan::set_dtype(const DType& dtype) {
  if (named_ == dtype) return;
  call.dtype = to_dtype_name(dtype.name());
  named_ = dtype;
}

void Plan::set_out(py::handle array, const HostArray& flat) {
  out_ = py::reinterpret_borrow<py::object>(array);
  out_begin_ = flat.begin();
}

Move Plan::move(Rank rank, std::byte* bytes, std::uint64_t nbytes, Rank part) const {
  Move made;
  made.rank = rank;
  made.bytes = bytes;
  made.nbytes = nbytes;
  made.label.kind = call.kind;
  made.label.root = call.root;
  made.label.nbytes = nbytes;
  made.label.part = part;
  made.label.dtype = call.dtype;
  return made;
}

void Plan::keep_own(const std::byte* source, std::byte* target, std::uint64_t nbytes) {
  if (source == target) return;
  own_source_ = source;
  own_target_ = target;
  own_nbytes_ = nbytes;
}

// What the other ranks know the call by.
void Plan::number(const Number& number) {
  number_ = number;
  for (auto* const moves : {&sends, &receives}) {
    for (Move& move : *moves) {
      move.label.number = moves == &sends ? number.sends : number.receives;
      move.label.digest = number.digest;
    }
  }
}

bool Plan::next(std::span<const Move> arrived) {
  if (!in_stages_) {
    finish(arrived);
    return false;
  }
  if (!stages_.next(sends, receives, arrived)) return false;
  for (auto* const moves : {&sends, &receives}) {
    for (Move& each : *moves) {
      const std::uint32_t part = each.label.part;
      each.label = move(each.rank, nullptr, call.nbytes, part).label;
    }
  }
  number(number_);
  return true;
}

std::pair<py::object, std::uint64_t> Plan::place(const Move& receive) const {
  const auto offset_in = [&](const std::byte* begin) {
    return static_cast<std::uint64_t>(receive.bytes - begin);
  };
  if (room_) {
    const auto* const room = reinterpret_cast<std::byte*>(PyByteArray_AS_STRING(room_.ptr()));
    const auto size = static_cast<std::uint64_t>(PyByteArray_GET_SIZE(room_.ptr()));
    if (receive.bytes >= room && offset_in(room) + receive.nbytes <= size) {
      return {room_, offset_in(room)};
    }
  }
  return {out_, offset_in(out_begin_)};
}

void Plan::finish(std::span<const Move> arrived) {
  if (own_nbytes_ > 0) std::memcpy(own_target_, own_source_, own_nbytes_);
  if (reduced_ == nullptr) return;
  inputs_.assign(place_.size, nullptr);
  inputs_[place_.rank] = own_input_;
  for (const Move& each : arrived) inputs_[each.rank] = each.arrived;
  std::erase(inputs_, nullptr);
  const std::uint64_t count = block_nbytes_ / named_->itemsize();
  engine::collective::reduce({.op = call.op, .dtype = *named_, .factor = factor}, reduced_, inputs_,
                             count);
}

// The other ranks, starting after this one, so that no rank is the first receiver of all others.
template <typename Each>
void Plan::others(Each&& each) const {
  for (Rank step = 1; step < place_.size; ++step) each((place_.rank + step) % place_.size);
}

bool Plan::broadcast(py::handle array, const HostArray* flat) {
  const auto root = static_cast<Rank>(place_.root);
  if (!flat || flat->nbytes() > kEager) return false;
  set_dtype(flat->dtype());
  call.nbytes = flat->nbytes();
  if (place_.rank == root) {
    others([&](Rank rank) { sends.push_back(move(rank, flat->begin(), flat->nbytes())); });
    return true;
  }
  if (!flat->writable()) return false;
  set_out(array, *flat);
  receives.push_back(move(root, flat->begin(), flat->nbytes()));
  return true;
}

// For scatter and gather: between `many`, one block per rank, and `one`.
bool Plan::with_root(bool gathers, py::handle target, const HostArray* one, const HostArray* many) {
  const auto root = static_cast<Rank>(place_.root);
  if (!one || one->nbytes() > kEager || (!gathers && !one->writable())) return false;
  set_dtype(one->dtype());
  auto& moves = gathers == (place_.rank == root) ? receives : sends;
  if (place_.rank != root) {
    if (!gathers) set_out(target, *one);
    moves.push_back(move(root, one->begin(), one->nbytes()));
    return true;
  }
  if (!many || many->dtype() != one->dtype() || (gathers && !many->writable())) return false;
  const auto blocks = cut(*many, place_.size);
  if (!blocks || blocks->nbytes != one->nbytes()) return false;
  std::byte* const own = blocks->at(root);
  if (own != one->begin() && !apart(*many, *one)) return false;
  set_out(target, gathers ? *many : *one);
  others([&](Rank rank) { moves.push_back(move(rank, blocks->at(rank), blocks->nbytes)); });
  gathers ? keep_own(one->begin(), own, one->nbytes()) : keep_own(own, one->begin(), one->nbytes());
  return true;
}

bool Plan::among_all(bool gathers, py::handle target, const HostArray* targets,
                     const HostArray* sources) {
  if (!targets || !sources) return false;
  const auto theirs = cut(*targets, place_.size);
  const auto mine = cut(*sources, gathers ? 1 : place_.size);
  if (!theirs || !mine || theirs->nbytes != mine->nbytes || theirs->nbytes > kEager ||
      !targets->writable() || targets->dtype() != sources->dtype()) {
    return false;
  }
  std::byte* const own = theirs->at(place_.rank);
  const bool in_place = gathers && own == sources->begin();
  if (!in_place && !apart(*targets, *sources)) return false;
  set_dtype(sources->dtype());
  set_out(target, *targets);
  if (gathers) call.nbytes = targets->nbytes();
  others([&](Rank rank) {
    std::byte* const from = gathers ? mine->begin : mine->at(rank);
    sends.push_back(move(rank, from, mine->nbytes, gathers ? place_.rank : 0));
  });
  others([&](Rank rank) {
    receives.push_back(move(rank, theirs->at(rank), theirs->nbytes, gathers ? rank : 0));
  });
  keep_own(gathers ? mine->begin : mine->at(place_.rank), own, mine->nbytes);
  return true;
}

// Whole elements of any type fit. Small blocks come with their headers, so it is not registered,
// unless they come from a GPU.
std::byte* Plan::room_for(std::uint64_t nbytes) {
  constexpr std::uint64_t kLongestElement = 16;
  nbytes = (nbytes + kLongestElement - 1) / kLongestElement * kLongestElement;
  if (!room_ || static_cast<std::uint64_t>(PyByteArray_GET_SIZE(room_.ptr())) < nbytes) {
    room_ = py::reinterpret_steal<py::object>(
        PyByteArray_FromStringAndSize(nullptr, static_cast<Py_ssize_t>(nbytes)));
    if (!room_) throw py::error_already_set();
  }
  return reinterpret_cast<std::byte*>(PyByteArray_AS_STRING(room_.ptr()));
}

// Every rank whose result depends on a block gets it, and reduces in the order of ranks.
bool Plan::reduction(py::handle target, py::handle source, const HostArray* to,
                     const HostArray* from) {
  const Rank rank = place_.rank, size = place_.size;
  const bool scatters = call.kind == Kind::reduce_scatter;
  const bool reduces = call.kind != Kind::reduce || rank == static_cast<Rank>(place_.root);
  if (!from || (reduces && to == nullptr && !(target.is_none() && !scatters))) return false;
  const HostArray& result = to != nullptr ? *to : *from;
  const auto blocks = cut(*from, scatters ? size : 1);
  if (!blocks) return false;
  const std::uint64_t nbytes = blocks->nbytes;
  if (call.kind == Kind::all_reduce || call.kind == Kind::reduce) {
    if (place_.topology == nullptr) return false;
    const auto& algorithm = place_.topology->algorithm(nbytes);
    in_stages_ = !place_.topology->is_direct(algorithm, nbytes);
    if (in_stages_ && algorithm.slice > kEager) return false;
  } else if (nbytes > kEager) {
    return false;
  }
  if (!engine::collective::why_no_reduction(call.op, from->dtype()).empty()) return false;
  const std::byte* const own = blocks->at(scatters ? rank : 0);
  if (reduces) {
    if (!result.writable() || result.nbytes() != nbytes || result.dtype() != from->dtype()) {
      return false;
    }
    if (result.begin() != own && !apart(result, *from)) return false;
  }
  set_dtype(from->dtype());
  factor = place_.factor;
  block_nbytes_ = nbytes;
  call.nbytes = from->nbytes();
  if (reduces) set_out(to != nullptr ? target : source, result);
  if (in_stages_) {
    begin_stages(nbytes, {.from = {from->begin()},
                          .to = {reduces ? result.begin() : nullptr},
                          .room = {},
                          .nbytes = nbytes});
    return true;
  }
  std::byte* room = reduces ? room_for((size - 1) * nbytes) : nullptr;
  own_input_ = own;
  others([&](Rank other) {
    const bool needs = call.kind == Kind::scan ? other > rank
                       : call.kind == Kind::reduce
                           ? !reduces && other == static_cast<Rank>(place_.root)
                           : true;
    if (needs) sends.push_back(move(other, blocks->at(scatters ? other : 0), nbytes, rank));
    if (!reduces || (call.kind == Kind::scan && other > rank)) return;
    receives.push_back(move(other, room, nbytes, other));
    receives.back().may_stay = true;
    room += nbytes;
  });
  if (reduces) reduced_ = result.begin();
  return true;
}

void Plan::begin_stages(std::uint64_t whole, engine::collective::StagedReduction::Arrays arrays) {
  stages_ = engine::collective::plan_of(
      *place_.topology,
      {.rank = place_.rank,
       .size = place_.size,
       .nbytes = whole,
       .has_result = call.kind != Kind::reduce || place_.rank == static_cast<Rank>(place_.root),
       .prefixes = call.kind == Kind::scan,
       .reduction = {.op = call.op, .dtype = *named_, .factor = factor}},
      place_.root);
  partners_ = stages_.partners();
  if (arrays.room.bytes == nullptr) arrays.room.bytes = room_for(stages_.room());
  stages_.begin(std::move(arrays));
  next({});
}

void Plan::make_stages(const Place& place, Kind kind, const DType& dtype,
                       engine::collective::StagedReduction::Arrays arrays, std::uint64_t whole) {
  begin(place, kind);
  in_stages_ = true;
  set_dtype(dtype);
  factor = place.factor;
  call.nbytes = whole;
  begin_stages(whole, std::move(arrays));
}

bool Plan::make(const engine::Endpoint& endpoint, const Place& place, Kind kind, py::handle target,
                py::handle source) {
  if (place.size < 2 || place.size > kFew) return false;
  begin(place, kind);
  const HostArray* const from = source_.take(endpoint, source) ? &source_ : nullptr;
  if (kind == Kind::broadcast) return broadcast(source, from);
  const HostArray* const to = target_.take(endpoint, target) ? &target_ : nullptr;
  if (place.op != engine::collective::Op::none) return reduction(target, source, to, from);
  if (kind == Kind::scatter) return with_root(false, target, to, from);
  if (kind == Kind::gather) return with_root(true, target, from, to);
  return among_all(kind == Kind::all_gather, target, to, from);
}

bool Plan::make_pair(const engine::Endpoint& endpoint, const Place& place, std::optional<Rank> to,
                     py::handle source, std::optional<Rank> from, py::handle target) {
  if (to == place.rank || from == place.rank) return false;
  begin(place, Kind::send_recv);
  if (to) {
    if (!source_.take(endpoint, source) || source_.nbytes() > kEager) return false;
    set_dtype(source_.dtype());
    sends.push_back(move(*to, source_.begin(), source_.nbytes()));
  }
  if (from) {
    if (!target_.take(endpoint, target) || target_.nbytes() > kEager || !target_.writable()) {
      return false;
    }
    if (to && !apart(target_, source_)) return false;
    set_dtype(target_.dtype());
    set_out(target, target_);
    receives.push_back(move(*from, target_.begin(), target_.nbytes()));
  }
  return true;
}

}  // namespace zerohop::bindings::collective
