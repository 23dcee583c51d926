#include "shm/exposures.hpp"

#include <fcntl.h>

#include <algorithm>
#include <cerrno>
#include <iterator>
#include <string>

#include "base/error.hpp"
#include "base/log.hpp"
#include "base/random.hpp"
#include "base/report.hpp"
#include "base/scarcity.hpp"

namespace zerohop::shm {
namespace {

std::uint64_t random_key() {
  const std::uint64_t key = std::uint64_t{random_u32()} << 32 | random_u32();
  return key != 0 ? key : random_key();
}

// Opens the file again, because access rights belong to the open file description.
UniqueFd open_again(int memfd, bool writable) {
  const std::string path = "/proc/self/fd/" + std::to_string(memfd);
  const int flags = (writable ? O_RDWR : O_RDONLY) | O_CLOEXEC;
  UniqueFd again = UniqueFd::open([&] { return ::open(path.c_str(), flags); });
  if (again) return again;
  throw_scarce("shared memory cannot be opened for a process of this host", errno);
}

void report_unended(bool by_gpu) noexcept {
  try {
    report("a process of this host" + why_unended(by_gpu, "memory that is being closed"));
  } catch (const std::bad_alloc&) {
    report("a process of this host still accesses memory that is being closed");
  }
}

}  // namespace

Exposure::~Exposure() { exposures_->end(entry_, key_, std::move(memory_)); }

Exposures::~Exposures() {
  sweep();
  // A client stopped in mid-copy may resume when this process no longer checks: leak the memory.
  for (Parked& left : parked_) new std::shared_ptr<const void>(std::move(left.memory));
}

std::shared_ptr<Exposure> Exposures::expose(const Range& range, Source source,
                                            std::shared_ptr<const void> memory) {
  const std::uint64_t key = random_key();
  const auto entry = generations_.enter();
  if (!entry) {
    if (!full_logged_.exchange(true)) {
      log(Level::warning, "route", [] {
        return "this Endpoint has registered " + std::to_string(GenerationTable::kSlots) +
               " ranges of memory that processes of this host may map: they reach further ones "
               "through a device only; register fewer, larger arrays";
      });
    }
    return nullptr;
  }
  auto exposure = std::make_shared<Exposure>(shared_from_this(), *entry, key, std::move(memory));
  const std::lock_guard lock(mutex_);
  entries_.emplace(key, Entry{.generations = *entry, .range = range, .source = std::move(source)});
  const std::size_t most = parked_.size() + entries_.size();
  if (parked_.capacity() < most) parked_.reserve(2 * most);  // so that end() need not allocate
  return exposure;
}

UniqueFd Exposures::generations() const {
  return open_again(generations_.fd(), /*writable=*/false);
}

std::optional<Offer> Exposures::find_entry(std::uint64_t key,
                                           std::shared_ptr<const Packer>& packer) const {
  // The memfd is open as long as the entry exists.
  const std::lock_guard lock(mutex_);
  const auto found = entries_.find(key);
  if (closed_ || found == entries_.end()) return std::nullopt;
  const Entry& entry = found->second;
  Offer offer{.entry = entry.generations, .range = entry.range, .pages = {}, .exported = {}};
  if (entry.source.memfd >= 0) offer.pages = open_again(entry.source.memfd, entry.range.writable);
  packer = entry.source.packer;
  return offer;
}

std::optional<Offer> Exposures::find(std::uint64_t key, std::uint64_t address) const {
  std::shared_ptr<const Packer> packer;
  auto offer = find_entry(key, packer);
  if (!offer || !packer || offer->range.begin == offer->range.end) return offer;
  Range& range = offer->range;
  ExportedChunk exported = packer->pack(std::clamp(address, range.begin, range.end - 1));
  range.begin = std::max(range.begin, exported.begin);
  range.end = std::min(range.end, exported.end);
  offer->exported = std::move(exported);
  // If the exposure ended meanwhile, the packed memory may be different memory.
  return find_entry(key, packer) ? std::move(offer) : std::nullopt;
}

bool Exposures::goes_in_chunks(std::uint64_t key) const {
  const std::lock_guard lock(mutex_);
  const auto found = entries_.find(key);
  return found != entries_.end() && found->second.source.packer != nullptr;
}

void Exposures::admit(const std::shared_ptr<LocalClient>& client) {
  const std::lock_guard lock(mutex_);
  clients_.push_back(client);
}

bool Exposures::at_work_in(std::uint32_t slot) const noexcept {
  return std::ranges::any_of(clients_,
                             [=](const auto& client) { return client->at_work_in(slot); });
}

void Exposures::end(const GenerationEntry& entry, std::uint64_t key,
                    std::shared_ptr<const void> memory) noexcept {
  if (generations_.fd() < 0) return;  // a forked child: the pages belong to the parent
  {
    const std::lock_guard lock(mutex_);
    entries_.erase(key);
    generations_.strike(entry.slot, key);
    if (at_work_in(entry.slot)) {
      parked_.push_back({.generations = entry, .memory = std::move(memory)});
      return;
    }
  }
  generations_.free(entry.slot);
}

void Exposures::sweep() noexcept {
  if (generations_.fd() < 0) return;
  std::vector<Parked> done;  // destroyed outside the lock: destructors may run anything
  {
    const std::lock_guard lock(mutex_);
    const auto first = std::ranges::partition(
        parked_, [this](const Parked& parked) { return at_work_in(parked.generations.slot); });
    done.assign(std::make_move_iterator(first.begin()), std::make_move_iterator(first.end()));
    parked_.erase(first.begin(), first.end());
  }
  for (const Parked& parked : done) generations_.free(parked.generations.slot);
}

void Exposures::forget_gone() noexcept {
  if (generations_.fd() < 0) return;
  std::vector<std::shared_ptr<LocalClient>> gone;  // closed and unmapped outside the lock
  const std::lock_guard lock(mutex_);
  const auto first =
      std::ranges::partition(clients_, [](const auto& client) { return !client->gone(); });
  gone.assign(std::make_move_iterator(first.begin()), std::make_move_iterator(first.end()));
  clients_.erase(first.begin(), first.end());
}

bool Exposures::settle(const GenerationEntry& entry, const Deadline& deadline) noexcept {
  if (generations_.fd() < 0) return true;
  const auto settled = [&] {
    sweep();
    const std::lock_guard lock(mutex_);
    return std::ranges::none_of(
        parked_, [&](const Parked& parked) { return parked.generations.serial == entry.serial; });
  };
  const auto in_vain = [&] {
    const std::lock_guard lock(mutex_);
    return std::ranges::all_of(clients_, [&](const auto& client) {
      return !client->at_work_in(entry.slot) || client->stays_stopped();
    });
  };
  if (await_copies(settled, in_vain, deadline)) return true;
  bool by_gpu = false;
  {
    const std::lock_guard lock(mutex_);
    by_gpu = std::ranges::any_of(
        clients_, [&](const auto& client) { return client->gpu_at_work_in(entry.slot); });
  }
  report_unended(by_gpu);
  return false;
}

void Exposures::close() noexcept {
  if (generations_.fd() < 0) return;
  {
    const std::lock_guard lock(mutex_);
    closed_ = true;
    for (const auto& [key, entry] : entries_) generations_.strike(entry.generations.slot, key);
  }
  const auto settled = [this] {
    sweep();
    const std::lock_guard lock(mutex_);
    return parked_.empty() && std::ranges::none_of(entries_, [this](const auto& entry) {
             return at_work_in(entry.second.generations.slot);
           });
  };
  const auto in_vain = [this] {
    const std::lock_guard lock(mutex_);
    return std::ranges::all_of(
        clients_, [](const auto& client) { return !client->at_work() || client->stays_stopped(); });
  };
  const bool ended = await_copies(settled, in_vain, Deadline::after(kLongestCopy));
  bool by_gpu = false;
  {
    const std::lock_guard lock(mutex_);
    // Nothing is exposed to the other clients any more.
    std::erase_if(clients_, [](const auto& client) { return !client->at_work(); });
    by_gpu =
        std::ranges::any_of(clients_, [](const auto& client) { return client->gpu_at_work(); });
  }
  if (!ended) report_unended(by_gpu);
}

}  // namespace zerohop::shm
