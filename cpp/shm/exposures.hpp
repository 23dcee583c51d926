// What memory of this process the processes of its host may reach, and for how long.
#pragma once

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
  std::uint64_t begin = 0;  // addresses of the owner
  std::uint64_t end = 0;
  bool writable = false;
};

// What a client is told of an exposure.
struct Offer {
  GenerationEntry entry{};
  Range range;
  UniqueFd pages;  // a memfd that begins at range.begin, read-only unless writable; none: the
                   // memory is reached as that of another process (man 2 process_vm_writev)
  std::optional<ExportedChunk>
      exported;  // ... unless it goes so; the range is what of it is exposed
};

class Exposures;

// The right to reach one range; ends with this object, which waits for nobody: should a client be
// at work in the range at that moment, then the memory stays until it no longer is.
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
  std::shared_ptr<const void> memory_;  // whatever keeps it alive
};

class Exposures : public std::enable_shared_from_this<Exposures> {
 public:
  ~Exposures();

  // What is behind a range.
  struct Source {
    int memfd = -1;  // its pages, from the begin of the range; kept open by the caller for as long
                     // as the exposure lives. -1: none
    std::shared_ptr<const Packer> packer{};  // null: it does not go in exported chunks
  };
  // memory: keeps the range alive. Null when kSlots ranges are exposed already.
  std::shared_ptr<Exposure> expose(const Range& range, Source source,
                                   std::shared_ptr<const void> memory);

  UniqueFd generations() const;  // to be read only. Throws Error when out of descriptors

  // address: of the chunk, where the memory goes in exported chunks. nullopt: there is no such key,
  // or no more. Throws Error when out of descriptors, RouteUnavailable when it cannot be given
  // away.
  std::optional<Offer> find(std::uint64_t key, std::uint64_t address) const;

  bool goes_in_chunks(std::uint64_t key) const;  // then find() asks a driver

  // From now on the memory that it is at work in stays, until it is gone.
  void admit(const std::shared_ptr<LocalClient>& client);

  // Ends every exposure, and waits for who is at work in any, kLongestCopy at most.
  void close() noexcept;

  // Once that exposure has ended: waits until nobody is at work in it any more. False: somebody
  // still is at the deadline. The memory stays meanwhile.
  bool settle(const GenerationEntry& entry, const Deadline& deadline) noexcept;

  // Lets go of memory in which nobody is at work any more; to be called now and then.
  void sweep() noexcept;
  // ... and of the sockets and pages of clients that are gone, for whom no next one may come.
  void forget_gone() noexcept;

 private:
  friend class Exposure;
  struct Entry {
    GenerationEntry generations;
    Range range;
    Source source;
  };
  // Ended, with somebody at work in it.
  struct Parked {
    GenerationEntry generations;
    std::shared_ptr<const void> memory;
  };

  void end(const GenerationEntry& entry, std::uint64_t key,
           std::shared_ptr<const void> memory) noexcept;
  bool at_work_in(std::uint32_t slot) const noexcept;  // with mutex_ held
  std::optional<Offer> find_entry(std::uint64_t key, std::shared_ptr<const Packer>& packer) const;

  GenerationTable generations_;
  mutable Mutex<Rank::exposures> mutex_;  // guards all below
  std::unordered_map<std::uint64_t, Entry> entries_;
  std::vector<Parked> parked_;
  std::vector<std::shared_ptr<LocalClient>> clients_;  // until they are gone
  bool closed_ = false;
};

}  // namespace zerohop::shm
