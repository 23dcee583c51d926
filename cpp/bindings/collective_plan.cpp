#include "bindings/collective_plan.hpp"

#include <algorithm>
#include <cstddef>
#include <exception>
#include <utility>

#include "bindings/array_import.hpp"
#include "bindings/collective_names.hpp"

namespace zerohop::bindings::collective {
namespace {

using engine::collective::kEager;
using engine::collective::Kind;
using engine::collective::Move;
using OfRank = engine::collective::Rank;

constexpr OfRank kFew = 8;  // ranks: more take several steps for what all of them exchange

// An array of the host in one row.
struct Flat {
  std::byte* begin = nullptr;
  std::uint64_t nbytes = 0;
  std::int64_t rows = -1;  // -1: it has no axis
  bool writable = false;
  DType dtype;
  Owner owner;

  std::byte* end() const noexcept { return begin + nbytes; }
};

std::optional<Flat> flat_of(const Layout& layout, bool writable, Owner owner) {
  if (!layout.is_contiguous() || layout.count() == 0) return std::nullopt;
  return Flat{.begin = reinterpret_cast<std::byte*>(layout.address),
              .nbytes = layout.nbytes(),
              .rows = layout.ndim() > 0 ? layout.shape[0] : -1,
              .writable = writable,
              .dtype = layout.dtype,
              .owner = std::move(owner)};
}

std::optional<Flat> flat_of(const engine::Endpoint& endpoint, py::handle array) {
  if (array.is_none() || PyList_Check(array.ptr()) || PyTuple_Check(array.ptr())) {
    return std::nullopt;
  }
  if (const engine::Memory* memory = find_memory(array)) {
    if (!memory->on_host() || memory->closed() || memory->endpoint() != endpoint.address().id) {
      return std::nullopt;
    }
    return flat_of(memory->layout(), memory->writable(), memory->pinned()->owner);
  }
  try {
    ImportedArray imported = import_array(array);
    if (imported.device != "cpu") return std::nullopt;
    return flat_of(imported.layout, imported.writable, std::move(imported.owner));
  } catch (const py::error_already_set&) {
    return std::nullopt;
  } catch (const py::builtin_exception&) {
    return std::nullopt;
  } catch (const Error&) {
    return std::nullopt;
  }
}

// Block `number` of `count` equal ones; all of it where it is not cut.
struct Cut {
  std::byte* begin = nullptr;
  std::uint64_t nbytes = 0;

  std::byte* at(OfRank number) const noexcept { return begin + number * nbytes; }
};

std::optional<Cut> cut(const Flat& flat, OfRank count) {
  if (count > 1 && (flat.rows < count || flat.rows % count != 0)) return std::nullopt;
  return Cut{flat.begin, flat.nbytes / count};
}

bool apart(const Flat& one, std::byte* begin, std::uint64_t nbytes) {
  return one.end() <= begin || begin + nbytes <= one.begin;
}

class Planner {
 public:
  Planner(const Place& place, Kind kind) : place_(place) {
    plan_->call.kind = kind;
    plan_->call.root = place.root;
    plan_->sends.reserve(place.size);
    plan_->receives.reserve(place.size);
  }

  void take(Flat& flat) {
    plan_->call.dtype = to_dtype_name(flat.dtype.name());
    plan_->owners.push_back(std::move(flat.owner));
  }
  void writes(py::handle out, const Flat& flat) {
    plan_->out = py::reinterpret_borrow<py::object>(out);
    plan_->out_address = reinterpret_cast<std::uint64_t>(flat.begin);
  }
  void send(OfRank rank, std::byte* from, std::uint64_t nbytes, std::uint32_t part = 0) {
    plan_->sends.push_back(move(rank, from, nbytes, part));
  }
  void receive(OfRank rank, std::byte* into, std::uint64_t nbytes, std::uint32_t part = 0) {
    plan_->receives.push_back(move(rank, into, nbytes, part));
  }
  void keep_own(const std::byte* source, std::byte* target, std::uint64_t nbytes) {
    if (source == target) return;
    plan_->own_source = source;
    plan_->own_target = target;
    plan_->own_nbytes = nbytes;
  }
  // The other ranks, beginning behind this one: no receiver is everybody's first.
  template <typename Each>
  void others(Each&& each) const {
    for (OfRank step = 1; step < place_.size; ++step) each((place_.rank + step) % place_.size);
  }
  // nbytes: where all ranks must have as many.
  std::unique_ptr<Plan> done(std::uint64_t nbytes = engine::collective::kAnyBytes) {
    plan_->call.nbytes = nbytes;
    return std::move(plan_);
  }

 private:
  Move move(OfRank rank, std::byte* bytes, std::uint64_t nbytes, std::uint32_t part) const {
    Move made;
    made.rank = rank;
    made.bytes = bytes;
    made.nbytes = nbytes;
    made.label.kind = plan_->call.kind;
    made.label.root = plan_->call.root;
    made.label.nbytes = nbytes;
    made.label.part = part;
    made.label.dtype = plan_->call.dtype;
    return made;
  }

  const Place place_;
  std::unique_ptr<Plan> plan_ = std::make_unique<Plan>();
};

std::unique_ptr<Plan> broadcast(Planner& planner, const Place& place, py::handle array,
                                Flat& flat) {
  const bool is_root = static_cast<std::int32_t>(place.rank) == place.root;
  if (flat.nbytes > kEager || (!is_root && !flat.writable)) return nullptr;
  planner.take(flat);
  if (is_root) {
    planner.others([&](OfRank rank) { planner.send(rank, flat.begin, flat.nbytes); });
  } else {
    planner.writes(array, flat);
    planner.receive(static_cast<OfRank>(place.root), flat.begin, flat.nbytes);
  }
  return planner.done(flat.nbytes);
}

// Between blocks of `many`, one for each rank, and `one`: scatter and gather.
std::unique_ptr<Plan> with_root(Planner& planner, const Place& place, bool gathers, py::handle out,
                                std::optional<Flat>& one, std::optional<Flat>& many) {
  if (!one || one->nbytes > kEager || (!gathers && !one->writable)) return nullptr;
  const auto root = static_cast<OfRank>(place.root);
  planner.take(*one);
  if (place.rank != root) {
    if (!gathers) planner.writes(out, *one);
    gathers ? planner.send(root, one->begin, one->nbytes)
            : planner.receive(root, one->begin, one->nbytes);
    return planner.done();
  }
  if (!many || many->dtype != one->dtype || (gathers && !many->writable)) return nullptr;
  const auto blocks = cut(*many, place.size);
  if (!blocks || blocks->nbytes != one->nbytes) return nullptr;
  std::byte* const own = blocks->at(root);
  if (own != one->begin && !apart(*many, one->begin, one->nbytes)) return nullptr;
  planner.take(*many);
  planner.writes(out, gathers ? *many : *one);
  planner.others([&](OfRank rank) {
    gathers ? planner.receive(rank, blocks->at(rank), blocks->nbytes)
            : planner.send(rank, blocks->at(rank), blocks->nbytes);
  });
  gathers ? planner.keep_own(one->begin, own, one->nbytes)
          : planner.keep_own(own, one->begin, one->nbytes);
  return planner.done();
}

std::unique_ptr<Plan> among_all(Planner& planner, const Place& place, bool gathers, py::handle out,
                                Flat& targets, Flat& sources) {
  const auto theirs = cut(targets, place.size);
  const auto mine = cut(sources, gathers ? 1 : place.size);
  if (!theirs || !mine || theirs->nbytes != mine->nbytes || theirs->nbytes > kEager ||
      !targets.writable || targets.dtype != sources.dtype) {
    return nullptr;
  }
  std::byte* const own = theirs->at(place.rank);
  const bool in_place = gathers && own == sources.begin;
  if (!in_place && !apart(targets, sources.begin, sources.nbytes)) return nullptr;
  planner.take(sources);
  planner.take(targets);
  planner.writes(out, targets);
  planner.others([&](OfRank rank) {
    std::byte* const from = gathers ? mine->begin : mine->at(rank);
    planner.send(rank, from, mine->nbytes, gathers ? place.rank : 0);
  });
  planner.others([&](OfRank rank) {
    planner.receive(rank, theirs->at(rank), theirs->nbytes, gathers ? rank : 0);
  });
  planner.keep_own(gathers ? mine->begin : mine->at(place.rank), own, mine->nbytes);
  return gathers ? planner.done(targets.nbytes) : planner.done();
}

}  // namespace

std::unique_ptr<Plan> plan_of(const engine::Endpoint& endpoint, const Place& place, Kind kind,
                              py::handle out, py::handle array) {
  if (place.size < 2 || place.size > kFew) return nullptr;
  Planner planner(place, kind);
  auto source = flat_of(endpoint, array);
  if (kind == Kind::broadcast) {
    return source ? broadcast(planner, place, array, *source) : nullptr;
  }
  auto target = flat_of(endpoint, out);
  if (kind == Kind::scatter) return with_root(planner, place, false, out, target, source);
  if (kind == Kind::gather) return with_root(planner, place, true, out, source, target);
  if (!source || !target) return nullptr;
  return among_all(planner, place, kind == Kind::all_gather, out, *target, *source);
}

std::unique_ptr<Plan> plan_of_pair(const engine::Endpoint& endpoint, const Place& place,
                                   std::optional<OfRank> to, py::handle array,
                                   std::optional<OfRank> from, py::handle out) {
  if (to == place.rank || from == place.rank) return nullptr;
  Planner planner(place, Kind::send_recv);
  auto source = to ? flat_of(endpoint, array) : std::nullopt;
  auto target = from ? flat_of(endpoint, out) : std::nullopt;
  if (to.has_value() != source.has_value() || from.has_value() != target.has_value()) {
    return nullptr;
  }
  if (source) {
    if (source->nbytes > kEager) return nullptr;
    planner.take(*source);
    planner.send(*to, source->begin, source->nbytes);
  }
  if (target) {
    if (target->nbytes > kEager || !target->writable) return nullptr;
    if (source && !apart(*target, source->begin, source->nbytes)) return nullptr;
    planner.take(*target);
    planner.writes(out, *target);
    planner.receive(*from, target->begin, target->nbytes);
  }
  return planner.done();
}

}  // namespace zerohop::bindings::collective
