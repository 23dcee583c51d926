#include "bindings/collective_plan.hpp"

#include <cstddef>
#include <utility>

#include "bindings/collective_names.hpp"

namespace zerohop::bindings::collective {
namespace {

using engine::collective::Array;
using engine::collective::Block;
using engine::collective::kAnyBytes;
using engine::collective::kEager;
using engine::collective::Kind;
using OfRank = engine::collective::Rank;

// Bytes of each of `count` equal blocks.
std::optional<std::uint64_t> cut(const HostArray& flat, OfRank count) {
  if (count > 1 && (flat.rows() < count || flat.rows() % count != 0)) return std::nullopt;
  return flat.nbytes() / count;
}

bool apart(const HostArray& one, const HostArray& other) {
  return one.end() <= other.begin() || other.end() <= one.begin();
}

}  // namespace

void Plan::begin(const Place& place, Kind kind) {
  schedule.reset();  // that of a call which was given up
  terms_.kind = kind;
  terms_.rank = place.rank;
  terms_.size = place.size;
  terms_.root = place.root;
  terms_.arrays.clear();
  terms_.outs.clear();
  terms_.ins.clear();
  terms_.to.reset();
  terms_.from.reset();
  terms_.reduction.op = place.op;
  terms_.reduction.factor = place.factor;
  terms_.by.reset();
  terms_.topology = place.topology;
  arrays_.clear();
  call.kind = kind;
  call.op = place.op;
  call.root = place.root;
  call.nbytes = kAnyBytes;
  factor = place.factor;
  large = false;
}

void Plan::end() {
  for (auto* const label : {&labels.send, &labels.receive}) {
    label->kind = call.kind;
    label->root = call.root;
  }
  schedule = schedules_.begin(terms_);
  const std::uint64_t room = schedule->room();
  if (room > 0) schedule->set_room({.bytes = room_for(room)});
}

void Plan::release() noexcept {
  source_.release();
  target_.release();
  arrays_.clear();
}

py::object Plan::array(std::size_t number) const {
  return number < arrays_.size() ? arrays_[number] : room_;
}

engine::collective::DTypeName Plan::name(const DType& dtype) {
  if (named_ != dtype) {
    name_ = to_dtype_name(dtype.name());
    named_ = dtype;
  }
  return name_;
}

void Plan::set_dtype(const DType& dtype) {
  call.dtype = labels.send.dtype = labels.receive.dtype = name(dtype);
}

std::size_t Plan::add(py::handle array, const HostArray& flat) {
  arrays_.push_back(py::reinterpret_borrow<py::object>(array));
  terms_.arrays.push_back({.bytes = flat.begin()});
  return arrays_.size() - 1;
}

void Plan::add_blocks(std::vector<Block>& blocks, py::handle array, const HostArray& flat,
                      Rank count) {
  const std::size_t number = add(array, flat);
  const std::uint64_t nbytes = flat.nbytes() / count;
  for (Rank rank = 0; rank < count; ++rank) blocks.push_back({number, rank * nbytes, nbytes});
}

bool Plan::broadcast(py::handle array, const HostArray* flat) {
  if (!flat || terms_.topology == nullptr) return false;
  if (terms_.rank != static_cast<Rank>(terms_.root) && !flat->writable()) return false;
  set_dtype(flat->dtype());
  call.nbytes = flat->nbytes();
  note_block(flat->nbytes());
  add_blocks(terms_.ins, array, *flat, 1);
  return true;
}

// For scatter and gather: between `many`, one block per rank, and `one`.
bool Plan::with_root(bool gathers, py::handle target, py::handle source, const HostArray* one,
                     const HostArray* many) {
  const auto root = static_cast<Rank>(terms_.root);
  if (!one || (!gathers && !one->writable())) return false;
  set_dtype(one->dtype());
  note_block(one->nbytes());
  add_blocks(gathers ? terms_.ins : terms_.outs, gathers ? source : target, *one, 1);
  if (terms_.rank != root) return true;
  if (!many || many->dtype() != one->dtype() || (gathers && !many->writable())) return false;
  const auto each = cut(*many, terms_.size);
  if (each != one->nbytes()) return false;
  if (many->begin() + root * *each != one->begin() && !apart(*many, *one)) return false;
  add_blocks(gathers ? terms_.outs : terms_.ins, gathers ? target : source, *many, terms_.size);
  return true;
}

bool Plan::among_all(bool gathers, py::handle target, py::handle source, const HostArray* targets,
                     const HostArray* sources) {
  if (!targets || !sources) return false;
  const auto theirs = cut(*targets, terms_.size);
  const auto mine = cut(*sources, gathers ? 1 : terms_.size);
  if (!theirs || theirs != mine || !targets->writable() || targets->dtype() != sources->dtype()) {
    return false;
  }
  const bool in_place = gathers && targets->begin() + terms_.rank * *theirs == sources->begin();
  if (!in_place && !apart(*targets, *sources)) return false;
  set_dtype(sources->dtype());
  note_block(*theirs);
  if (gathers) call.nbytes = targets->nbytes();
  add_blocks(terms_.outs, target, *targets, terms_.size);
  add_blocks(terms_.ins, source, *sources, gathers ? 1 : terms_.size);
  return true;
}

// Small blocks come with their headers, so it is not registered, unless they come from a GPU.
std::byte* Plan::room_for(std::uint64_t nbytes) {
  if (!room_ || static_cast<std::uint64_t>(PyByteArray_GET_SIZE(room_.ptr())) < nbytes) {
    room_ = py::reinterpret_steal<py::object>(
        PyByteArray_FromStringAndSize(nullptr, static_cast<Py_ssize_t>(nbytes)));
    if (!room_) throw py::error_already_set();
  }
  return reinterpret_cast<std::byte*>(PyByteArray_AS_STRING(room_.ptr()));
}

bool Plan::reduction(py::handle target, py::handle source, const HostArray* to,
                     const HostArray* from) {
  const bool scatters = call.kind == Kind::reduce_scatter;
  const bool reduces = call.kind != Kind::reduce || terms_.rank == static_cast<Rank>(terms_.root);
  if (!from || (reduces && to == nullptr && !(target.is_none() && !scatters))) return false;
  const HostArray& result = to != nullptr ? *to : *from;
  const auto each = cut(*from, scatters ? terms_.size : 1);
  if (!each) return false;
  if (call.kind == Kind::all_reduce || call.kind == Kind::reduce) {
    if (terms_.topology == nullptr) return false;
    if (*each > kEager && terms_.topology->algorithm(*each).slice > kEager) return false;
  } else if (*each > kEager || (terms_.topology == nullptr && call.kind == Kind::scan)) {
    return false;
  }
  if (!engine::collective::why_no_reduction(call.op, from->dtype()).empty()) return false;
  if (reduces) {
    if (!result.writable() || result.nbytes() != *each || result.dtype() != from->dtype()) {
      return false;
    }
    const std::byte* const own = from->begin() + (scatters ? terms_.rank * *each : 0);
    if (result.begin() != own && !apart(result, *from)) return false;
  }
  set_dtype(from->dtype());
  terms_.reduction.dtype = from->dtype();
  call.nbytes = from->nbytes();
  add_blocks(terms_.ins, source, *from, scatters ? terms_.size : 1);
  if (reduces) add_blocks(terms_.outs, to != nullptr ? target : source, result, 1);
  return true;
}

bool Plan::make(const engine::Endpoint& endpoint, const Place& place, Kind kind, py::handle target,
                py::handle source) {
  if (place.size < 2) return false;
  begin(place, kind);
  const HostArray* const from = source_.take(endpoint, source) ? &source_ : nullptr;
  const HostArray* const to =
      kind != Kind::broadcast && target_.take(endpoint, target) ? &target_ : nullptr;
  const bool made = kind == Kind::broadcast                    ? broadcast(source, from)
                    : place.op != engine::collective::Op::none ? reduction(target, source, to, from)
                    : kind == Kind::scatter ? with_root(false, target, source, to, from)
                    : kind == Kind::gather
                        ? with_root(true, target, source, from, to)
                        : among_all(kind == Kind::all_gather, target, source, to, from);
  if (made) end();
  return made;
}

bool Plan::make_pair(const engine::Endpoint& endpoint, const Place& place, std::optional<Rank> to,
                     py::handle source, std::optional<Rank> from, py::handle target) {
  if (to == place.rank || from == place.rank) return false;
  begin(place, Kind::send_recv);
  terms_.to = to;
  terms_.from = from;
  if (to) {
    if (!source_.take(endpoint, source)) return false;
    note_block(source_.nbytes());
    labels.send.dtype = name(source_.dtype());
    add_blocks(terms_.ins, source, source_, 1);
  }
  if (from) {
    if (!target_.take(endpoint, target) || !target_.writable()) return false;
    note_block(target_.nbytes());
    if (to && !apart(target_, source_)) return false;
    labels.receive.dtype = name(target_.dtype());
    add_blocks(terms_.outs, target, target_, 1);
  }
  end();
  return true;
}

}  // namespace zerohop::bindings::collective
