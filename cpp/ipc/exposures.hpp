// What memory of this process the processes of its host may reach, and for how long.
#pragma once

#include <cstdint>
#include <memory>
#include <mutex>
#include <optional>
#include <unordered_map>
#include <vector>

#include "base/unique_fd.hpp"
#include "ipc/ledger.hpp"
#include "ipc/visitor.hpp"

namespace zerohop::ipc {

struct Range {
  std::uint64_t begin = 0;  // addresses of the owner
  std::uint64_t end = 0;
  bool writable = false;
};

// What a visitor is told of an exposure.
struct Offer {
  LedgerEntry entry{};
  Range range;
  UniqueFd pages;  // a memfd that begins at range.begin, read-only unless writable; none: the
                   // memory is reached as that of another process (man 2 process_vm_writev)
};

class Exposures;

// The right to reach one range; ends with this object. When the destructor returns, no visitor is
// at work in the range, but for one that was stopped in mid-copy for five seconds (reported).
class Exposure {
 public:
  Exposure(std::shared_ptr<Exposures> exposures, LedgerEntry entry, std::uint64_t key)
      : exposures_(std::move(exposures)), entry_(entry), key_(key) {}
  ~Exposure();
  Exposure(const Exposure&) = delete;
  Exposure& operator=(const Exposure&) = delete;

  std::uint64_t key() const noexcept { return key_; }  // unguessable, never 0

 private:
  const std::shared_ptr<Exposures> exposures_;
  const LedgerEntry entry_;
  const std::uint64_t key_;
};

class Exposures : public std::enable_shared_from_this<Exposures> {
 public:
  // memfd: whose pages are those of the range, from its begin; kept open by the caller for as long
  // as the exposure lives. -1: none. Null when kSlots ranges are exposed already.
  std::shared_ptr<Exposure> expose(const Range& range, int memfd);

  UniqueFd ledger() const;  // to be read only. Throws Error when out of descriptors

  // nullopt: there is no such key, or no more. Throws Error when out of descriptors.
  std::optional<Offer> find(std::uint64_t key) const;

  // From now on closing waits for its copies, until it is gone.
  void admit(const std::shared_ptr<Visitor>& visitor);

  // Ends every exposure, as their destructors would.
  void close() noexcept;

 private:
  friend class Exposure;
  struct Entry {
    LedgerEntry ledger;
    Range range;
    int memfd;
  };

  void revoke(const LedgerEntry& entry, std::uint64_t key) noexcept;
  void wait_for_visitors(const LedgerEntry& entry) noexcept;
  std::vector<std::shared_ptr<Visitor>> visitors() const;

  Ledger ledger_;
  mutable std::mutex mutex_;  // guards the next two
  std::unordered_map<std::uint64_t, Entry> entries_;
  std::vector<std::shared_ptr<Visitor>> visitors_;  // until they are gone
};

}  // namespace zerohop::ipc
