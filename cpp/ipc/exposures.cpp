#include "ipc/exposures.hpp"

#include <fcntl.h>

#include <cerrno>
#include <string>
#include <thread>

#include "base/deadline.hpp"
#include "base/error.hpp"
#include "base/random.hpp"
#include "base/report.hpp"

namespace zerohop::ipc {
namespace {

// A visitor copies a few MiB under one claim. One that needs longer than this was stopped.
constexpr Deadline::Seconds kLongestCopy{5};

std::uint64_t random_key() {
  const std::uint64_t key = std::uint64_t{random_u32()} << 32 | random_u32();
  return key != 0 ? key : random_key();
}

// Another opening of the file, because the rights of a descriptor are those of its opening.
UniqueFd open_again(int memfd, bool writable) {
  const std::string path = "/proc/self/fd/" + std::to_string(memfd);
  const int flags = (writable ? O_RDWR : O_RDONLY) | O_CLOEXEC;
  UniqueFd again = UniqueFd::open([&] { return ::open(path.c_str(), flags); });
  if (again) return again;
  throw Error(errno_message("shared memory cannot be opened for a process of this host", errno),
              errno);
}

}  // namespace

Exposure::~Exposure() { exposures_->revoke(entry_, key_); }

std::shared_ptr<Exposure> Exposures::expose(const Range& range, int memfd) {
  const std::uint64_t key = random_key();
  const auto entry = ledger_.enter();
  if (!entry) return nullptr;
  auto exposure = std::make_shared<Exposure>(shared_from_this(), *entry, key);
  const std::lock_guard lock(mutex_);
  entries_.emplace(key, Entry{.ledger = *entry, .range = range, .memfd = memfd});
  return exposure;
}

UniqueFd Exposures::ledger() const { return open_again(ledger_.fd(), /*writable=*/false); }

std::optional<Offer> Exposures::find(std::uint64_t key) const {
  // The memfd is open as long as the entry is here.
  const std::lock_guard lock(mutex_);
  const auto found = entries_.find(key);
  if (found == entries_.end()) return std::nullopt;
  const Entry& entry = found->second;
  Offer offer{.entry = entry.ledger, .range = entry.range, .pages = {}};
  if (entry.memfd >= 0) offer.pages = open_again(entry.memfd, entry.range.writable);
  return offer;
}

void Exposures::admit(const std::shared_ptr<Visitor>& visitor) {
  const std::lock_guard lock(mutex_);
  std::erase_if(visitors_, [](const auto& other) { return other->gone(); });
  visitors_.push_back(visitor);
}

std::vector<std::shared_ptr<Visitor>> Exposures::visitors() const {
  const std::lock_guard lock(mutex_);
  return visitors_;
}

void Exposures::revoke(const LedgerEntry& entry, std::uint64_t key) noexcept {
  if (ledger_.fd() < 0) return;  // a forked child: the pages are its parent's
  {
    const std::lock_guard lock(mutex_);
    if (entries_.erase(key) == 0) return;  // close() came first
  }
  ledger_.strike(entry.slot);
  wait_for_visitors(entry);
}

void Exposures::close() noexcept {
  if (ledger_.fd() < 0) return;
  std::unordered_map<std::uint64_t, Entry> all;
  {
    const std::lock_guard lock(mutex_);
    all.swap(entries_);
  }
  for (const auto& [key, entry] : all) ledger_.strike(entry.ledger.slot);
  for (const auto& [key, entry] : all) wait_for_visitors(entry.ledger);
  const std::lock_guard lock(mutex_);
  visitors_.clear();  // nothing is exposed to them any more
}

void Exposures::wait_for_visitors(const LedgerEntry& entry) noexcept {
  const Deadline bound = Deadline::after(kLongestCopy);
  for (const auto& visitor : visitors()) {
    while (visitor->at_work_in(entry.slot)) {
      if (bound.passed()) {
        report(
            "a process of this host was stopped while it copied from or to memory that is being "
            "closed, and may finish that copy when it goes on");
        return;  // the slot is never used again
      }
      std::this_thread::yield();
    }
  }
  ledger_.free(entry.slot);
}

}  // namespace zerohop::ipc
