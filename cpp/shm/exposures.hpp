// Which memory of this process other processes of its host may access, and for how long.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <optional>
#include <unordered_map>
#include <vector>

#include "base/locks.hpp"
#include "base/unique_fd.hpp"
#include "shm/exported_chunk.hpp"
#include "shm/generation_table.hpp"
#include "shm/local_client.hpp"

namespace zerohop::shm {

struct Range {
  std::uint64_t begin = 0;  // in the owner's addresses
  std::uint64_t end = 0;
  bool writable = false;
};

// What a client receives for an exposure.
struct Offer {
  GenerationEntry entry{};
  Range range;
  UniqueFd pages;  // a memfd that begins at range.begin, read-only unless writable; empty: access
                   // the memory as another process's (man 2 process_vm_writev)
  std::optional<ExportedChunk> exported;  // ... unless this is set; the range is its exposed part
};

class Exposures;

// The right to access one range. Ends with this object, which does not wait: if a client is
// accessing the range at that moment, the memory stays until the client is done.
class Exposure {
 public:
  Exposure(std::shared_ptr<Exposures> exposures, GenerationEntry entry, std::uint64_t key,
           std::shared_ptr<const void> memory)
      : exposures_(std::move(exposures)), entry_(entry), key_(key), memory_(std::move(memory)) {}
  ~Exposure();
  Exposure(const Exposure&) = delete;
  Exposure& operator=(const Exposure&) = delete;

  std::uint64_t key() const noexcept { return key_; }  // unguessable, never 0
  const GenerationEntry& entry() const noexcept { return entry_; }
  const std::shared_ptr<Exposures>& exposures() const noexcept { return exposures_; }

 private:
  const std::shared_ptr<Exposures> exposures_;
  const GenerationEntry entry_;
  const std::uint64_t key_;
  std::shared_ptr<const void> memory_;  // keeps the memory alive
};

class Exposures : public std::enable_shared_from_this<Exposures> {
 public:
  ~Exposures();

  // The backing of a range.
  struct Source {
    int memfd = -1;  // its pages, from the start of the range; the caller keeps it open for
                     // the exposure's lifetime. -1: none
    std::shared_ptr<const Packer> packer{};  // null: not exported in chunks
  };
  // memory: keeps the range alive. Null when kSlots ranges are exposed already.
  std::shared_ptr<Exposure> expose(const Range& range, Source source,
                                   std::shared_ptr<const void> memory);

  UniqueFd generations() const;  // read-only. Throws Error when out of descriptors

  // address: of the chunk, for memory exported in chunks. nullopt: there is no such key, or no
  // longer. Throws Error when out of descriptors, RouteUnavailable when it cannot be exported.
  std::optional<Offer> find(std::uint64_t key, std::uint64_t address) const;

  bool goes_in_chunks(std::uint64_t key) const;  // then find() calls a driver

  // From now on, memory that the client is accessing stays until the client is gone.
  void admit(const std::shared_ptr<LocalClient>& client);

  // Ends every exposure, and waits for clients that are accessing one, at most kLongestCopy.
  void close() noexcept;

  // After the exposure has ended: waits until no client accesses it. False: one still does at the
  // deadline. The memory stays until then.
  bool settle(const GenerationEntry& entry, const Deadline& deadline) noexcept;

  // Frees ended memory that no client accesses any more. Call periodically.
  void sweep() noexcept;
  // ... and closes sockets and pages of clients that are gone, in case no further client arrives.
  void forget_gone() noexcept;

 private:
  friend class Exposure;
  struct Entry {
    GenerationEntry generations;
    Range range;
    Source source;
  };
  // Ended, but still accessed by a client.
  struct Parked {
    GenerationEntry generations;
    std::shared_ptr<const void> memory;
  };

  void end(const GenerationEntry& entry, std::uint64_t key,
           std::shared_ptr<const void> memory) noexcept;
  bool at_work_in(std::uint32_t slot) const noexcept;  // call with mutex_ held
  std::optional<Offer> find_entry(std::uint64_t key, std::shared_ptr<const Packer>& packer) const;

  GenerationTable generations_;
  std::atomic<bool> full_logged_{false};
  mutable Mutex<Rank::exposures> mutex_;  // guards all members below
  std::unordered_map<std::uint64_t, Entry> entries_;
  std::vector<Parked> parked_;
  std::vector<std::shared_ptr<LocalClient>> clients_;  // until they are gone
  bool closed_ = false;
};

}  // namespace zerohop::shm
