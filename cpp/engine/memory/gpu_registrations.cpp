#include "engine/memory/gpu_registrations.hpp"

#include <algorithm>
#include <cstdio>
#include <optional>
#include <utility>

#include "base/error.hpp"
#include "base/log.hpp"

namespace zerohop::engine {
namespace {

std::optional<RegistrationWay> way_of(RegistrationDemand demand) noexcept {
  if (demand == RegistrationDemand::dmabuf) return RegistrationWay::dmabuf;
  if (demand == RegistrationDemand::peermem) return RegistrationWay::peermem;
  return std::nullopt;
}

int errno_of(const PairFacts& facts, RegistrationDemand demand) noexcept {
  return demand == RegistrationDemand::peermem ? facts.peermem_trial.error_number
                                               : facts.dmabuf.error_number;
}

[[noreturn]] void refuse(const GpuRegistrations::Request& request, const std::string& reason,
                         int error_number) {
  char what[96];
  std::snprintf(what, sizeof what, "cannot register %llu bytes at %#llx on cuda:%d: ",
                static_cast<unsigned long long>(request.extent.end - request.extent.begin),
                static_cast<unsigned long long>(request.extent.begin), request.ordinal);
  throw RegistrationError(what + reason, error_number);
}

}  // namespace

Adapter make_adapter(std::shared_ptr<rdma::ProtectionDomain> domain) {
  // libmlx5 casts the structures of libibverbs to its own: devices of another table would break it.
  const auto& library = driver::libibverbs();
  const bool is_libibverbs = library.verbs != nullptr && library.verbs.get() == &domain->verbs();
  auto mlx5dv = is_libibverbs ? driver::libmlx5().mlx5dv : nullptr;
  return {std::move(domain), std::move(mlx5dv)};
}

GpuRegistrations::GpuRegistrations(Adapter adapter, std::shared_ptr<const driver::Cuda> cuda,
                                   HostFacts host, const GpuOptions& options)
    : adapter_(std::move(adapter)),
      cuda_(std::move(cuda)),
      host_(std::move(host)),
      options_(options),
      cache_(std::make_shared<RegionCache>(options.cache)) {}

// If two threads ask first, both open the device, and the first result is kept.
GpuRegistrations::Pair GpuRegistrations::pair(int ordinal) {
  {
    const std::lock_guard lock(mutex_);
    if (const auto known = pairs_.find(ordinal); known != pairs_.end()) return known->second;
  }
  Pair fresh;
  fresh.device = gpu::Device::open(cuda_, ordinal);
  fresh.facts = ask_pair(adapter_, *fresh.device, host_);
  const std::lock_guard lock(mutex_);
  return pairs_.try_emplace(ordinal, fresh).first->second;
}

// Includes trials with this memory, where they can be conclusive. What failed for lack of resources
// is tried again the next time.
GpuRegistrations::Pair GpuRegistrations::tried_pair(const Request& request,
                                                    const MemoryFacts& memory) {
  Pair tried = pair(request.ordinal);
  if (tried.facts.lasting || !is_reachable(tried.facts, memory)) return tried;
  if (request.demand == RegistrationDemand::staged || copies(request)) return tried;
  probe_pair(adapter_, *tried.device, request.extent, tried.facts);
  const std::lock_guard lock(mutex_);
  if (tried.facts.lasting) pairs_.at(request.ordinal).facts = tried.facts;
  return tried;
}

std::shared_ptr<gpu::Device> GpuRegistrations::device(int ordinal) {
  {
    const std::lock_guard lock(mutex_);
    if (const auto known = pairs_.find(ordinal); known != pairs_.end()) return known->second.device;
  }
  return pair(ordinal).device;
}

PairFacts GpuRegistrations::pair_facts(int ordinal) { return pair(ordinal).facts; }

GpuRegion GpuRegistrations::find_or_create(const Request& request) {
  auto device = this->device(request.ordinal);  // initialises CUDA, which must come first
  GpuRegion registered = find_or_register(request);
  registered.device = std::move(device);
  return registered;
}

bool GpuRegistrations::copies(const Request& request) const noexcept {
  return adapter_.domain->verbs().reg_copied_mr != nullptr &&
         request.demand == RegistrationDemand::automatic;
}

GpuRegion GpuRegistrations::find_or_register(const Request& request) {
  if (request.extent.begin == request.extent.end) {
    return {nullptr, std::make_shared<const RegistrationChoice>(RegistrationChoice{
                         RegistrationWay::staged, false, false, "it has no bytes"})};
  }
  RegionCache::Key key{.extent = request.extent,
                       .chunks = gpu::find_chunks(*cuda_, request.extent),
                       .access = access_bits(adapter_.domain->device(), request.writable)};
  const bool cached =
      request.shared && request.demand != RegistrationDemand::staged && !copies(request);
  std::optional<PendingRegistrations::Claim> claim;
  if (cached) {
    claim.emplace(pending_, WantedRegistration{.extent = request.extent, .rights = key.access},
                  Deadline::after(kRegistrationPatience));
    // A cached registration needs no further question, not even the kind of memory.
    if (GpuRegion known = cache_->find(key, way_of(request.demand)); known.region) return known;
    sweep_sometimes();
  }
  const MemoryFacts memory = ask_memory(key);
  GpuRegion fresh = create(tried_pair(request, memory), request, memory);
  return cached && fresh.region ? cache_->insert(std::move(key), std::move(fresh)) : fresh;
}

MemoryFacts GpuRegistrations::ask_memory(const RegionCache::Key& key) const {
  const gpu::Allocation allocation = gpu::find_allocation(*cuda_, key.extent.begin);
  return {.kind = allocation.kind,
          .gpudirect_capable = std::ranges::all_of(key.chunks, &gpu::Chunk::gpudirect_capable),
          .chunks = key.chunks.size(),
          .nbytes = key.extent.end - key.extent.begin};
}

GpuRegion GpuRegistrations::create(const Pair& pair, const Request& request,
                                   const MemoryFacts& memory) {
  const RegistrationOrder order{request.demand, options_.relaxed_ordering};
  PairFacts facts = pair.facts;
  for (;;) {
    auto choice =
        std::make_shared<const RegistrationChoice>(choose_registration(facts, memory, order));
    if (choice->way == RegistrationWay::refused) {
      refuse(request, choice->reason, errno_of(facts, request.demand));
    }
    if (choice->way == RegistrationWay::staged) {
      note_fall(request, *choice);
      auto region = copies(request) ? register_copied(request) : nullptr;
      return {std::move(region), std::move(choice)};
    }
    if (auto region = try_choice(pair, request, *choice, facts)) {
      // Refused for memory of cuMemCreate: there the program orders its copies by streams.
      (void)gpu::set_sync_memops(*cuda_, request.extent.begin);
      return {std::move(region), std::move(choice)};
    }
    // A refusal for this memory becomes one more fact: choose again.
  }
}

// Logs memory that an adapter should reach but does not, once for each cause.
void GpuRegistrations::note_fall(const Request& request, const RegistrationChoice& choice) {
  if (request.demand == RegistrationDemand::staged || copies(request)) return;
  if (!falls_.add(choice.reason)) return;
  log(Level::warning, "route", [&] {
    return "device " + adapter_.domain->device().name() +
           " does not reach memory of cuda:" + std::to_string(request.ordinal) +
           "; where no other device does, it is staged through the host, because " + choice.reason;
  });
}

std::shared_ptr<gpu::Copier> GpuRegistrations::copier(int ordinal) {
  const Pair known = pair(ordinal);
  if (known.copier) return known.copier;
  const auto fresh = std::make_shared<gpu::Copier>(known.device, options_.staging_chunk);
  const std::lock_guard lock(mutex_);
  auto& copier = pairs_.at(ordinal).copier;
  if (!copier) copier = fresh;
  return copier;
}

std::shared_ptr<rdma::MemoryRegion> GpuRegistrations::register_copied(const Request& request) {
  return rdma::MemoryRegion::create_copied(
      adapter_.domain, request.extent.begin, request.extent.end - request.extent.begin,
      access_bits(adapter_.domain->device(), request.writable), copier(request.ordinal));
}

// Null when the memory is refused: the failure is then among the facts.
std::shared_ptr<rdma::MemoryRegion> GpuRegistrations::try_choice(const Pair& pair,
                                                                 const Request& request,
                                                                 const RegistrationChoice& choice,
                                                                 PairFacts& facts) const {
  const Extent& extent = request.extent;
  const bool dmabuf = choice.way == RegistrationWay::dmabuf;
  const int access = access_bits(adapter_.domain->device(), request.writable) |
                     (choice.relaxed_ordering ? static_cast<int>(IBV_ACCESS_RELAXED_ORDERING) : 0);
  Trial failure{.made = true};
  try {
    if (dmabuf) {
      return register_dmabuf(adapter_, *pair.device, extent, access, choice.data_direct);
    }
    return rdma::MemoryRegion::create(adapter_.domain, reinterpret_cast<void*>(extent.begin),
                                      extent.end - extent.begin, access);
  } catch (const CudaError& error) {
    failure.cuda_error = error.code();
  } catch (const RegistrationError& error) {
    failure.error_number = error.code();
  }
  if (choice.data_direct) {
    facts.data_direct = false;  // the usual way may still work
  } else {
    (dmabuf ? facts.dmabuf : facts.peermem_trial) = failure;
  }
  return nullptr;
}

// Unused registrations of freed memory keep it from being reused. Checking them takes one driver
// call each, so it happens only after so many misses that its share per miss is small.
void GpuRegistrations::sweep_sometimes() {
  constexpr std::uint64_t kLooksPerMiss = 16;
  {
    const std::lock_guard lock(mutex_);
    if (++misses_since_sweep_ * kLooksPerMiss < cache_->stats().unused) return;
    misses_since_sweep_ = 0;
  }
  cache_->sweep([this](const RegionCache::Key& key) {
    try {
      return gpu::find_chunks(*cuda_, key.extent) != key.chunks;
    } catch (const RegistrationError&) {
      return true;  // no longer mapped
    }
  });
}

}  // namespace zerohop::engine
