#include "engine/memory/own_memories.hpp"

#include <utility>

#include "base/error.hpp"

namespace zerohop::engine {
namespace {

// One number for keys of all kinds: rail keys have 32 bits, and each rail has its own.
std::uint64_t name_of(RailIndex rail, std::uint32_t rkey) noexcept {
  return std::uint64_t{rail} << 32 | rkey;
}

template <typename Each>
void for_each_name(const RailKeys& rkeys, std::uint64_t staged_key, Each each) {
  for (RailIndex rail = 0; rail < kMaxRails; ++rail) {
    if (rkeys[rail] != 0) each(name_of(rail, rkeys[rail]));
  }
  if (staged_key != 0) each(staged_key);
}

// Compares keys of the same kind only: a staged key may equal a rail key.
bool have_one_key(const RailKeys& rkeys, std::uint64_t staged_key, const RemoteMemory& named) {
  if (named.staged_key != 0 && named.staged_key == staged_key) return true;
  for (RailIndex rail = 0; rail < kMaxRails; ++rail) {
    if (named.rkeys[rail] != 0 && named.rkeys[rail] == rkeys[rail]) return true;
  }
  return false;
}

}  // namespace

std::shared_ptr<const OwnMemories::Entry> OwnMemories::add(
    const Regions* regions, const std::shared_ptr<void>& owner,
    std::shared_ptr<const gpu::Device> device) {
  if (regions == nullptr) return nullptr;
  const RailKeys rkeys = regions->rkeys();
  const std::uint64_t staged_key = regions->staged_key();
  const std::lock_guard lock(mutex_);
  const std::uint64_t number = ++last_;
  auto entry = std::make_shared<const Entry>(shared_from_this(), number);
  std::weak_ptr<const void> held = entry;  // unowned memory lives as long as its entry
  if (owner) held = owner;
  known_.emplace(number, Known{.rkeys = rkeys,
                               .staged_key = staged_key,
                               .covered = regions->covered(),
                               .owner = std::move(held),
                               .device = std::move(device)});
  for_each_name(rkeys, staged_key, [&](std::uint64_t name) { by_key_.emplace(name, number); });
  return entry;
}

void OwnMemories::remove(std::uint64_t number) {
  if (generation_ != fork_generation()) return;  // a child: peers ask the parent
  decltype(known_)::node_type last;              // destroyed, with its device, outside the lock
  const std::lock_guard lock(mutex_);
  last = known_.extract(number);
  if (!last) return;
  const Known& known = last.mapped();
  for_each_name(known.rkeys, known.staged_key,
                [&](std::uint64_t name) { by_key_.erase({name, number}); });
}

OwnMemories::Held OwnMemories::find(const RemoteMemory& named) const {
  const Extent wanted = named.layout.extent();
  Held held;
  const std::lock_guard lock(mutex_);
  for_each_name(named.rkeys, named.staged_key, [&](std::uint64_t name) {
    for (auto each = by_key_.lower_bound({name, 0});
         each != by_key_.end() && each->first == name && !held.owner; ++each) {
      const Known& known = known_.at(each->second);
      const Extent& covered = known.covered;
      const bool inside = covered.begin <= wanted.begin && wanted.end <= covered.end;
      if (!inside || !have_one_key(known.rkeys, known.staged_key, named)) continue;
      held = {known.owner.lock(), known.device};
    }
  });
  if (held.owner) return held;
  throw RegistrationError("its memory was closed by its owner, or never given");
}

}  // namespace zerohop::engine
