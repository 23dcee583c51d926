// The memory of an Endpoint: registering, allocating, sharing by name.
#include <stdexcept>
#include <string_view>
#include <utility>

#include "base/buffer.hpp"
#include "base/error.hpp"
#include "base/numa.hpp"
#include "engine/core/endpoint.hpp"
#include "engine/memory/cuda_table.hpp"
#include "engine/stream/gpu_packer.hpp"
#include "gpu/buffer.hpp"

namespace zerohop::engine {
namespace {

constexpr std::string_view kCudaPrefix = "cuda:";
constexpr std::string_view kNodePrefix = "numa:";

int ordinal_of(const std::string& cuda_device) {
  return std::stoi(cuda_device.substr(kCudaPrefix.size()));
}

}  // namespace

Memory Endpoint::register_memory(const Layout& layout, std::shared_ptr<void> owner,
                                 const Registering& how) {
  const Entered entered = enter();
  check_devices();
  if (how.device.starts_with(kCudaPrefix)) return register_gpu_memory(layout, owner, how);
  if (how.device != "cpu") {
    throw RegistrationError("cannot register memory on " + how.device +
                            ": only that of the host and of NVIDIA GPUs is; copy the array to "
                            "the host first");
  }
  auto regions =
      registrations_->find_or_create(layout.extent(), how.writable, how.shared,
                                     {.owner = how.exposed ? owner : nullptr, .memfd = how.memfd});
  auto named = own_memories_->add(regions.get(), owner, nullptr);
  auto registration = std::make_shared<const Registration>(std::move(regions), std::move(owner),
                                                           layout.extent(), how.writable);
  registration->named = std::move(named);
  std::string place = place_of(layout, how.device);
  const RailIndex nearest = nearest_rail(place);
  return Memory(address_.id, layout, std::move(registration),
                {.writable = how.writable,
                 .device = how.device,
                 .rail = nearest,
                 .place = std::move(place),
                 .choice = nullptr});
}

// The place of memory, as a key of EndpointOptions::nearest; empty if unknown. Call it after
// registration, which gives the memory its pages.
std::string Endpoint::place_of(const Layout& layout, const std::string& device) const {
  std::string place = device;
  if (device == "cpu") {
    const auto nodes = options_.nearest.lower_bound(std::string(kNodePrefix));
    if (nodes == options_.nearest.end()) return "";
    place = std::string(kNodePrefix) + std::to_string(numa_node_of(layout.extent().begin));
  }
  return options_.nearest.contains(place) ? place : "";
}

RailIndex Endpoint::nearest_rail(const std::string& place) const {
  const auto known = options_.nearest.find(place);
  return known == options_.nearest.end() ? RailIndex{0} : known->second;
}

Memory Endpoint::register_gpu_memory(const Layout& layout, std::shared_ptr<void> owner,
                                     const Registering& how) {
  const RailIndex nearest = nearest_rail(how.device);
  auto regions = std::make_shared<Regions>();
  std::shared_ptr<const RegistrationChoice> choice;  // of the nearest rail
  std::shared_ptr<const gpu::Device> device;
  for (const auto& rail : rails_) {
    if (rail->gone()) continue;
    GpuRegion registered =
        gpu_registrations(*rail, how.device)
            .find_or_create({.extent = layout.extent(),
                             .ordinal = ordinal_of(how.device),
                             .writable = how.writable,
                             .shared = how.shared,
                             .demand = how.demand.value_or(options_.gpu.registration)});
    if (!choice || rail->index() == nearest) choice = std::move(registered.choice);
    device = std::move(registered.device);
    regions->set(rail->index(), std::move(registered.region));
  }
  if (!choice) {
    throw RegistrationError("no device of this Endpoint is left: make a new Endpoint");
  }
  std::shared_ptr<const StagedMemories::Right> right;
  if (regions->empty() && layout.count() > 0) {
    right = staged_memories_->open(layout.extent(), how.writable);
    regions->set_staged(right);
  }
  if (neighbourhood_ && how.exposed && layout.count() > 0) {
    const Extent extent = layout.extent();
    note_mirrors_->settle(device);  // before any GPU can write there and notify
    regions->set_exposure(neighbourhood_->exposures()->expose(
        {.begin = extent.begin, .end = extent.end, .writable = how.writable},
        {.memfd = -1, .packer = std::make_shared<const GpuPacker>(device)}, owner));
  }
  live_regions_->add(regions);
  auto named = own_memories_->add(regions.get(), owner, device);
  auto registration =
      std::make_shared<const Registration>(std::move(regions), std::move(owner), std::move(device));
  registration->named = std::move(named);
  if (right) staged_memories_->bind(*right, registration);
  return Memory(address_.id, layout, std::move(registration),
                {.writable = how.writable,
                 .device = how.device,
                 .rail = nearest,
                 .place = place_of(layout, how.device),
                 .choice = std::move(choice),
                 .demand = how.demand});
}

// Called with life_ held.
std::shared_ptr<gpu::Device> Endpoint::gpu_device(const std::string& device) {
  return gpu_registrations(*rails_.at(nearest_rail(device)), device).device(ordinal_of(device));
}

GpuRegistrations& Endpoint::gpu_registrations(const Rail& rail, const std::string& device) {
  {
    const std::lock_guard lock(gpu_mutex_);
    if (const auto& known = gpu_registrations_[rail.index()]) return *known;
  }
  auto fresh = std::make_unique<GpuRegistrations>(make_adapter(rail.domain()),
                                                  cuda_or(options_.cuda, "memory on " + device),
                                                  ask_host(), options_.gpu);
  const std::lock_guard lock(gpu_mutex_);
  auto& registrations = gpu_registrations_[rail.index()];
  if (!registrations) registrations = std::move(fresh);
  return *registrations;
}

RegionCache::Stats Endpoint::gpu_registration_stats() const {
  check_process();
  const std::lock_guard lock(gpu_mutex_);
  RegionCache::Stats all;
  for (const auto& registrations : gpu_registrations_) {
    if (registrations) all += registrations->stats();
  }
  return all;
}

Memory Endpoint::empty(std::span<const std::int64_t> shape, DType dtype, const std::string& device,
                       std::optional<RegistrationDemand> demand) {
  check_open();
  Layout layout = Layout::contiguous(0, dtype, shape);
  layout.validate();
  const auto register_buffer = [&](auto buffer, int memfd) {
    layout.address = buffer->address();
    return register_memory(
        layout, std::move(buffer),
        {.writable = true, .device = device, .shared = false, .demand = demand, .memfd = memfd});
  };
  if (!device.starts_with(kCudaPrefix)) {
    auto buffer = std::make_shared<Buffer>(layout.nbytes());
    const int memfd = buffer->fd();
    return register_buffer(std::move(buffer), memfd);
  }
  auto gpu = [&] {
    const Entered entered = enter();
    return gpu_device(device);
  }();
  return register_buffer(gpu::Buffer::create(std::move(gpu), layout.nbytes(), deadline({})), -1);
}

Grant Endpoint::grant(const Memory& memory, const GrantOptions& options) {
  if (memory.endpoint() != address_.id) {
    throw RegistrationError("this memory is registered with another Endpoint: grant it there");
  }
  if (options.writable && !memory.writable()) {
    throw std::invalid_argument(
        "a grant cannot allow more than its memory does, which is read-only");
  }
  const auto registration = memory.registration();
  const Memory granted = register_memory(memory.layout(), registration->owner,
                                         {.writable = options.writable,
                                          .device = memory.device(),
                                          .shared = false,
                                          .exposed = false,
                                          .demand = memory.demand()});
  registration->grants.add(granted.weak());
  Grant grant(granted, options);
  if (memory.closed()) grant.revoke();  // its close() may have run before this grant was made
  (void)grant.remote();
  if (grant.due()) expiry_.at(grant.due()->at(), granted.weak());
  return grant;
}

void Endpoint::share(const std::string& name, const Memory& memory) {
  const Entered entered = enter();
  if (name.size() > kMaxNameBytes) {
    throw std::invalid_argument("a name has at most " + std::to_string(kMaxNameBytes) +
                                " bytes: choose a shorter one");
  }
  (void)memory.remote();  // refuses closed memory now rather than at a peer
  control_->shares().put(name, memory);
  control_->on_shared(name);
}

bool Endpoint::unshare(const std::string& name) {
  const Entered entered = enter();
  return control_->shares().remove(name);
}

}  // namespace zerohop::engine
