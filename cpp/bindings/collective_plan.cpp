#include "bindings/collective_plan.hpp"

#include <algorithm>
#include <cstddef>
#include <utility>

#include "bindings/collective_names.hpp"

namespace zerohop::bindings::collective {
namespace {

using engine::collective::kAnyBytes;
using engine::collective::kEager;
using engine::collective::Kind;
using engine::collective::Move;
using OfRank = engine::collective::Rank;

constexpr OfRank kFew = 8;  // ranks: with more, all-to-all exchanges take several steps

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
  own_nbytes = 0;
  call.kind = kind;
  call.root = place.root;
  call.nbytes = kAnyBytes;
}

void Plan::release() noexcept {
  source_.release();
  target_.release();
  out = py::object();
}

void Plan::set_dtype(const DType& dtype) {
  if (named_ == dtype) return;
  call.dtype = to_dtype_name(dtype.name());
  named_ = dtype;
}

void Plan::set_out(py::handle array, const HostArray& flat) {
  out = py::reinterpret_borrow<py::object>(array);
  out_begin = flat.begin();
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
  own_source = source;
  own_target = target;
  own_nbytes = nbytes;
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

bool Plan::make(const engine::Endpoint& endpoint, const Place& place, Kind kind, py::handle target,
                py::handle source) {
  if (place.size < 2 || place.size > kFew) return false;
  begin(place, kind);
  const HostArray* const from = source_.take(endpoint, source) ? &source_ : nullptr;
  if (kind == Kind::broadcast) return broadcast(source, from);
  const HostArray* const to = target_.take(endpoint, target) ? &target_ : nullptr;
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
