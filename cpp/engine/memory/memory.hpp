// A registered local array: its layout, the registration behind it, and what keeps it alive.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "base/index.hpp"
#include "base/layout.hpp"
#include "base/locks.hpp"
#include "engine/memory/lease.hpp"
#include "engine/memory/own_memories.hpp"
#include "engine/memory/regions.hpp"
#include "engine/memory/registration_choice.hpp"
#include "engine/memory/remote_memory.hpp"
#include "gpu/device.hpp"
#include "gpu/host_pages.hpp"

namespace zerohop::engine {

struct Registration;

// A Memory to be closed later, if it still exists.
class WeakMemory {
 public:
  WeakMemory(std::weak_ptr<Lease<const Registration>> lease, std::string device)
      : lease_(std::move(lease)), device_(std::move(device)) {}
  bool gone() const noexcept { return lease_.expired(); }
  void close() const noexcept;  // see Memory::close()
  // Closes all at once: waits for their copies together, not one memory after the other.
  static void close(std::span<const WeakMemory> all) noexcept;

 private:
  friend class Closing;
  void await_finish() const noexcept;  // waits for another thread that closes it

  std::weak_ptr<Lease<const Registration>> lease_;
  std::string device_;
};

// The grants of some memory, which end with it. Thread-safe.
class Grants {
 public:
  void add(WeakMemory grant);
  void close() noexcept;

 private:
  Mutex<Rank::memory> mutex_;
  std::vector<WeakMemory> all_;
  std::size_t next_sweep_ = 16;  // entry count at which dead entries are removed
};

// Registered memory and its owner. Transfers hold it, so that it stays alive and registered while
// they run, whatever the caller closes or drops.
struct Registration {
  std::shared_ptr<const Regions> regions;  // null for memory without bytes
  std::shared_ptr<void> owner;
  std::shared_ptr<const gpu::Device> device;  // null for host memory
  const std::unique_ptr<gpu::HostPages>
      pages{};  // lets GPUs access host memory; null for GPU memory
  mutable Grants grants;
  mutable std::shared_ptr<const OwnMemories::Entry> named{};  // set by its creator

  Registration(std::shared_ptr<const Regions> r, std::shared_ptr<void> o,
               std::shared_ptr<const gpu::Device> d = nullptr)
      : regions(std::move(r)), owner(std::move(o)), device(std::move(d)) {}
  Registration(std::shared_ptr<const Regions> r, std::shared_ptr<void> o, const Extent& host,
               bool writable)
      : regions(std::move(r)),
        owner(std::move(o)),
        pages(std::make_unique<gpu::HostPages>(
            host, owner, writable ? gpu::PageUse::write : gpu::PageUse::read)) {}
  // Deregisters before the memory may be freed.
  ~Registration() { regions.reset(); }
  Registration(const Registration&) = delete;
  Registration& operator=(const Registration&) = delete;

  std::uint32_t lkey(RailIndex rail) const noexcept { return regions ? regions->lkey(rail) : 0; }
};

class Memory {
 public:
  struct Kind {
    bool writable = false;
    std::string device = "cpu";
    RailIndex rail = 0;                                // the nearest one
    std::string place{};                               // ... and why: "numa:1", for example
    std::shared_ptr<const RegistrationChoice> choice;  // of GPU memory; null for host memory
    std::optional<RegistrationDemand> demand{};        // with which it was registered
  };
  Memory(EndpointId endpoint, Layout layout, std::shared_ptr<const Registration> registration,
         Kind kind);

  const Layout& layout() const noexcept { return layout_; }
  bool writable() const noexcept { return kind_.writable; }
  const std::string& device() const noexcept { return kind_.device; }
  const EndpointId& endpoint() const noexcept { return endpoint_; }
  // GPU memory that no device can access, so that the Endpoint copies. Throws what registration()
  // throws.
  bool staged() const;
  bool on_host() const noexcept { return kind_.choice == nullptr; }
  RailIndex nearest_rail() const noexcept { return kind_.rail; }
  // Why that rail: what it is nearest to; empty if nothing is known and it is simply the first.
  const std::string& place() const noexcept { return kind_.place; }
  std::optional<RegistrationDemand> demand() const noexcept { return kind_.demand; }
  const RegistrationChoice* choice() const noexcept { return kind_.choice.get(); }

  // A part of the same memory, or all of it in another shape or element type; closing either closes
  // both.
  Memory slice(std::span<const Index> indices) const;
  Memory reshape(std::span<const std::int64_t> shape) const;
  Memory range(std::uint64_t address, std::uint64_t nbytes) const;  // those bytes of it
  // Turns this one into such a range: for a caller that sends many.
  void aim(std::uint64_t address, std::uint64_t nbytes) {
    layout_ = Layout::bytes(address, nbytes);
  }
  Memory view(DType dtype) const;

  // Ends the right to use this memory, here and at peers that have its RemoteMemory. Running
  // transfers finish first; until then it stays registered. Waits at most five seconds for copies
  // by a process of this host; a stopped process is reported. If another thread is closing it
  // already, waits for that thread.
  void close() noexcept;
  bool closed() const noexcept;     // or closing: no new use can start
  bool withdrawn() const noexcept;  // close() has finished
  void check_open() const;          // throws RegistrationError once closed

  // Throws RegistrationError once closed.
  std::shared_ptr<const Registration> registration() const;
  // The same for one call, without another owner: while the Use lives, the memory stays as with
  // registration(). False: closed.
  using Use = Lease<const Registration>::Use;
  Use use() const noexcept { return Use(*lease_); }
  RemoteMemory remote() const;
  WeakMemory weak() const { return {lease_, kind_.device}; }

 private:
  EndpointId endpoint_;
  Layout layout_;
  std::shared_ptr<Lease<const Registration>> lease_;  // shared by all slices of one register() call
  Kind kind_;
};

}  // namespace zerohop::engine
