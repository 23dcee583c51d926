// How GPU memory is registered with an adapter: decided from facts, with the reason.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "gpu/device_facts.hpp"
#include "gpu/memory_kind.hpp"

namespace zerohop::engine {

enum class RegistrationWay {
  dmabuf,   // the adapter's driver maps a dma-buf that the GPU's driver exports
  peermem,  // the kernel module nvidia-peermem translates GPU addresses
  staged,   // no adapter access: bytes go through pinned host memory
  refused,
};
const char* way_name(RegistrationWay way) noexcept;

// What the program asks for. Throws std::invalid_argument for words other than "auto", "dmabuf",
// "peermem" and "staged".
enum class RegistrationDemand { automatic, dmabuf, peermem, staged };
RegistrationDemand parse_registration(std::string_view word);
const char* demand_name(RegistrationDemand demand) noexcept;

// Relaxed ordering lets writes pass each other on their way to memory, which some platforms need
// for full speed. Data covered by a completion or notification is in place all the same (man
// ibv_reg_mr); only overlapping transfers, posted without waiting in between, land in any order. It
// is a hint: the access bit is optional, and a kernel or driver that does not know it ignores it.
enum class RelaxedOrdering { automatic, on, off };

// The result of a trial registration of a small part of the memory.
struct Trial {
  bool made = false;
  int cuda_error = 0;    // CUresult of the export
  int error_number = 0;  // errno of the registration
  bool worked() const noexcept { return made && cuda_error == 0 && error_number == 0; }
};

// One GPU and one adapter.
struct PairFacts {
  std::string adapter;              // "mlx5_0"
  int kernel = 0;                   // 1000 * major + minor
  std::string peermem;              // name of the loaded kernel module, empty: none
  bool software = false;            // the adapter is the software HCA, which copies
  bool library_has_dmabuf = false;  // ibv_reg_dmabuf_mr
  Trial dmabuf;
  Trial peermem_trial;
  bool data_direct = false;       // dma-bufs go through mlx5 Data Direct
  bool relaxed_ordering = false;  // the adapter did not refuse it
  // Whether the result holds for other memory and later: false before the trials, and when one
  // failed for lack of memory, for example.
  bool lasting = false;
  gpu::DeviceFacts gpu;
};

// The memory to register.
struct MemoryFacts {
  gpu::MemoryKind kind = gpu::MemoryKind::unknown;
  bool gpudirect_capable = false;  // all of it
  std::size_t chunks = 1;          // separately mapped pieces of physical memory
  std::uint64_t nbytes = 0;
};

struct RegistrationOrder {  // the program's demand
  RegistrationDemand demand = RegistrationDemand::automatic;
  RelaxedOrdering relaxed_ordering = RelaxedOrdering::automatic;
};

struct RegistrationChoice {
  RegistrationWay way = RegistrationWay::refused;
  bool relaxed_ordering = false;
  bool data_direct = false;
  std::string reason;  // why this way; for staged and refused also what would help
};

// Whether the memory is open to adapters, as far as that is known without a trial.
bool is_reachable(const PairFacts& pair, const MemoryFacts& memory);

RegistrationChoice choose_registration(const PairFacts& pair, const MemoryFacts& memory,
                                       const RegistrationOrder& order);

}  // namespace zerohop::engine
