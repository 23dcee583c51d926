// The soft devices of this host, and their attributes.
#pragma once

#include <infiniband/verbs.h>
#include <netinet/in.h>

#include <string>
#include <string_view>
#include <vector>

#include "softhca/wire.hpp"

namespace zerohop::softhca {

namespace limits {
inline constexpr int kQueuePairs = 1 << 20;
inline constexpr int kWorkRequests = 1 << 15;  // per queue
inline constexpr int kCompletions = 1 << 20;   // per completion queue
inline constexpr int kSge = 32;
inline constexpr std::uint32_t kInlineBytes = 512;
inline constexpr int kReadsAndAtomics = 16;  // outstanding on one queue pair, in each direction
}  // namespace limits

// Devices are never destroyed: an open ibv_device may be used after its list is freed.
struct SoftDevice : ibv_device {
  std::string interface;  // "lo", "eth0"
  in_addr address{};      // where its port listens

  static const SoftDevice& of(const ibv_device* device) noexcept {
    return *static_cast<const SoftDevice*>(device);
  }
};

// "soft0" (loopback) first, then "soft0@<interface>" for every other interface that is up and has
// an IPv4 address, then the loopback devices requested so far. Throws Error if the kernel does not
// list the interfaces.
std::vector<SoftDevice*> soft_devices();

// "soft0@127.0.0.2": a separate device on another loopback address, listed from now on. Null for
// any other name. Several of them in one process simulate several adapters.
SoftDevice* loopback_device(const std::string& name);

// The members of driver::Verbs.
ibv_device** get_device_list(int* count);
void free_device_list(ibv_device** list);
const char* get_device_name(ibv_device* device);
int query_device(ibv_context* context, ibv_device_attr* attributes);
int query_port(ibv_context* context, std::uint8_t port, ibv_port_attr* attributes);
int query_gid(ibv_context* context, std::uint8_t port, int index, ibv_gid* gid);
ssize_t query_gid_table(ibv_context* context, ibv_gid_entry* entries, std::size_t max_entries,
                        std::uint32_t flags, std::size_t entry_size);
int query_pkey(ibv_context* context, std::uint8_t port, int index, __be16* pkey);

}  // namespace zerohop::softhca
