// A way between two arrays for kernels, as opened: the input of a Queue.
#pragma once

#include <memory>
#include <optional>

#include "base/deadline.hpp"
#include "engine/core/endpoint.hpp"
#include "engine/path/gpu/kernel_reach.hpp"
#include "gda/device_value.hpp"
#include "gda/proxy.hpp"
#include "gpu/host_pages.hpp"
#include "zerohop/ring_way.h"
#include "zerohop/types.h"

namespace zerohop::gda {

// automatic: mapped memory if available, else the proxy.
enum class WantedWay { automatic, mapped, direct, proxy };

// What the program asks for.
struct QueueOptions {
  engine::Hearers hearers = engine::Hearers::both;  // for mapped memory
  WantedWay way = WantedWay::automatic;
  engine::RingPlaces places{};      // for a direct queue
  std::optional<double> timeout{};  // seconds; empty: the Endpoint's default
};

struct QueueArrays {
  engine::Endpoint& endpoint;
  const std::shared_ptr<engine::Peer>& peer;
  const engine::Memory& local;
  const engine::RemoteMemory& remote;
};

struct OpenedWay {
  device::Queue queue;                    // without what lies in GPU memory
  std::optional<device::RingWay> ring{};  // likewise
  std::shared_ptr<const engine::Route> route;
  std::shared_ptr<const gpu::Device> device;                // runs the kernels
  std::shared_ptr<const Proxy> proxy{};                     // null: none
  std::shared_ptr<const engine::DirectQueuePair> direct{};  // null: none
  DeviceValue::Kept kept{};                                 // held as long as kernels may use it
};

// These throw what those of KernelAccess throw, CudaError, RegistrationError.
OpenedWay open_mapped(const QueueArrays& arrays, engine::Hearers hearers,
                      const std::optional<double>& timeout);
OpenedWay open_direct(const QueueArrays& arrays, const QueueOptions& options,
                      const Deadline& deadline);
OpenedWay open_proxy(const QueueArrays& arrays, const std::optional<double>& timeout,
                     const std::string& not_mapped, const Deadline& deadline);

// Lets the GPU access what `owner` keeps mapped. Throws RouteUnavailable.
void map_pages(OpenedWay& opened, std::shared_ptr<const void> owner, const Extent& extent,
               gpu::PageUse use, const Deadline& deadline);
// A ring's queue, without the addresses of the Peer's board.
device::Queue make_ring_queue(const QueueArrays& arrays, const engine::EntryReach& reach);
// With host addresses; without the ring's state, the claims, the patience, and what depends on the
// GPU.
device::RingWay describe(const engine::DirectReach& reach);
// Throws std::invalid_argument.
void check_on_gpu(const engine::Memory& local);

}  // namespace zerohop::gda
