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
  peermem,  // the kernel module nvidia-peermem translates the GPU's addresses
  staged,   // not for the adapter's own access: bytes go through pinned host memory
  refused,
};
const char* way_name(RegistrationWay way) noexcept;

// What the program asks for. Throws std::invalid_argument for other words than "auto", "dmabuf",
// "peermem" and "staged".
enum class RegistrationDemand { automatic, dmabuf, peermem, staged };
RegistrationDemand parse_registration(std::string_view word);
const char* demand_name(RegistrationDemand demand) noexcept;

// Relaxed ordering lets writes pass each other on their way to the memory, which some platforms
// need for full speed. What a completion or notification tells of is in place all the same (man
// ibv_reg_mr); only transfers that overlap, posted without waiting in between, land in any order.
// It is asked for and no more: the access bit is optional, and a kernel or driver that does not
// know it drops it without a word.
enum class RelaxedOrdering { automatic, on, off };

// A registration that was tried with a little of the memory in question.
struct Trial {
  bool made = false;
  int cuda_error = 0;    // CUresult of the export
  int error_number = 0;  // errno of the registration
  bool worked() const noexcept { return made && cuda_error == 0 && error_number == 0; }
};

// Of one GPU and one adapter.
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
  // Whether other memory and another time would change nothing: false before the trials, and when
  // one failed for lack of memory, say.
  bool lasting = false;
  gpu::DeviceFacts gpu;
};

// Of the memory in question.
struct MemoryFacts {
  gpu::MemoryKind kind = gpu::MemoryKind::unknown;
  bool gpudirect_capable = false;  // all of it
  std::size_t chunks = 1;          // separately mapped pieces of physical memory
  std::uint64_t nbytes = 0;
};

struct RegistrationOrder {  // what the program orders
  RegistrationDemand demand = RegistrationDemand::automatic;
  RelaxedOrdering relaxed_ordering = RelaxedOrdering::automatic;
};

struct RegistrationChoice {
  RegistrationWay way = RegistrationWay::refused;
  bool relaxed_ordering = false;
  bool data_direct = false;
  std::string reason;  // why this way; for staged and refused also what would give a better one
};

// Whether the memory is open to adapters, as far as that is known without a trial.
bool is_reachable(const PairFacts& pair, const MemoryFacts& memory);

RegistrationChoice choose_registration(const PairFacts& pair, const MemoryFacts& memory,
                                       const RegistrationOrder& order);

}  // namespace zerohop::engine
