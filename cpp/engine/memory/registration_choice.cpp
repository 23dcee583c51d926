#include "engine/memory/registration_choice.hpp"

#include <cerrno>
#include <cstring>
#include <stdexcept>

namespace zerohop::engine {
namespace {

using gpu::MemoryKind;

constexpr int kDmabufKernel = 5012;  // Linux 5.12: ib_uverbs registers dma-bufs

std::string words_of(int error_number) {
  return std::string(::strerrordesc_np(error_number)) + ", errno " + std::to_string(error_number);
}

// Why no adapter can reach this memory in any way; empty when one can.
std::string refusal_of_memory(const PairFacts& pair, const MemoryFacts& memory) {
  const std::string gpu = pair.gpu.device_name() + " (" + pair.gpu.name + ")";
  if (memory.kind == MemoryKind::managed) {
    return "managed memory migrates between host and GPU and cannot be registered: allocate with "
           "cudaMalloc";
  }
  if (memory.kind == MemoryKind::pool) {
    return "memory of a stream-ordered pool (cudaMallocAsync) is not open to adapters: allocate "
           "with cudaMalloc (PyTorch: unset backend:cudaMallocAsync in PYTORCH_CUDA_ALLOC_CONF; "
           "CuPy: cupy.cuda.set_allocator(cupy.cuda.MemoryPool().malloc))";
  }
  if (!pair.gpu.gpudirect) {
    return gpu + " does not support GPUDirect RDMA: use a data-centre or workstation GPU";
  }
  if (memory.kind == MemoryKind::vmm && !memory.gpudirect_capable) {
    return (memory.chunks > 1 ? "part of the " + std::to_string(memory.chunks) +
                                    " chunks that the "
                                    "array lies across"
                              : std::string("this memory of cuMemCreate")) +
           " was made without allocFlags.gpuDirectRDMACapable: set it when creating";
  }
  if (!memory.gpudirect_capable) {
    return "the driver says that this memory is not open to adapters: allocate with cudaMalloc";
  }
  if (pair.gpu.bar1_nbytes && memory.nbytes > *pair.gpu.bar1_nbytes) {
    return "its " + std::to_string(memory.nbytes) + " bytes exceed the window of " +
           std::to_string(*pair.gpu.bar1_nbytes) + " bytes (BAR1) through which adapters see " +
           gpu + ": enable Resizable BAR in the firmware, or register parts";
  }
  return "";
}

std::string refusal_of_export(const PairFacts& pair, const MemoryFacts& memory) {
  if (memory.chunks > 1 && pair.dmabuf.cuda_error == driver::kCudaErrorInvalidValue) {
    return "the " + std::to_string(memory.chunks) +
           " chunks of physical memory that the array lies across were made with different "
           "properties, or on different GPUs: register it in parts, or allocate it in one piece";
  }
  return "the NVIDIA driver refuses to export memory of " + pair.gpu.device_name() +
         " as a dma-buf (CUDA error " + std::to_string(pair.dmabuf.cuda_error) +
         "): use its open kernel modules, version 515 or newer";
}

// The remedy for an errno of a failed registration of GPU memory.
std::string refusal_of_adapter(const PairFacts& pair, RegistrationWay way, int error_number) {
  const bool dmabuf = way == RegistrationWay::dmabuf;
  const std::string what = pair.adapter + " does not register GPU memory through " +
                           (dmabuf ? "dma-buf" : pair.peermem) + " (" + words_of(error_number) +
                           "): ";
  switch (error_number) {
    case EOPNOTSUPP:
    case EPROTONOSUPPORT:
    case ENOSYS: return what + "its driver does not offer it; use another adapter";
    case EFAULT:
      return what + (dmabuf ? "it cannot map what the NVIDIA driver exports; see `dmesg`"
                            : "its RDMA driver does not use the module; install NVIDIA's own "
                              "(DOCA-OFED), or use dma-buf");
    case ENOMEM:
      return what + "the window of " + pair.gpu.device_name() +
             " (BAR1) or the adapter's memory is used up; close what else is registered";
    case EPERM:
    case EACCES: return what + "give this user access to /dev/infiniband/uverbs*";
    default: return what + "see `dmesg`";
  }
}

// Why dma-buf does not work for this memory; empty when it does.
std::string refusal_of_dmabuf(const PairFacts& pair, const MemoryFacts& memory) {
  if (!pair.gpu.dmabuf) {
    return "the NVIDIA driver exports no dma-bufs: install its open kernel modules (nvidia-open), "
           "version 515 or newer";
  }
  if (!pair.library_has_dmabuf) {
    return "libibverbs lacks ibv_reg_dmabuf_mr: install rdma-core 34 or newer";
  }
  if (pair.kernel < kDmabufKernel) {
    return "Linux " + std::to_string(pair.kernel / 1000) + "." +
           std::to_string(pair.kernel % 1000) + " does not register dma-bufs: boot 5.12 or newer";
  }
  if (pair.dmabuf.cuda_error != 0) return refusal_of_export(pair, memory);
  if (pair.dmabuf.error_number != 0) {
    return refusal_of_adapter(pair, RegistrationWay::dmabuf, pair.dmabuf.error_number);
  }
  return pair.dmabuf.made ? "" : "dma-buf was not tried";
}

std::string refusal_of_peermem(const PairFacts& pair, const MemoryFacts& memory) {
  if (pair.peermem.empty()) {
    return "the kernel module nvidia-peermem is not loaded: `modprobe nvidia-peermem`";
  }
  if (memory.chunks > 1) {
    return "the array lies across " + std::to_string(memory.chunks) +
           " chunks of physical memory, of which " + pair.peermem +
           " registers only one: use dma-buf, or PyTorch without expandable segments";
  }
  if (!pair.peermem_trial.worked()) {
    return refusal_of_adapter(pair, RegistrationWay::peermem, pair.peermem_trial.error_number);
  }
  return "";
}

RegistrationChoice refused(std::string reason) {
  return {RegistrationWay::refused, false, false, std::move(reason)};
}

RegistrationChoice staged(std::string reason) {
  return {RegistrationWay::staged, false, false, std::move(reason)};
}

RegistrationChoice registered(RegistrationWay way, const PairFacts& pair,
                              const RegistrationOrder& order) {
  if (order.relaxed_ordering == RelaxedOrdering::on && !pair.relaxed_ordering) {
    return refused(pair.adapter +
                   " refuses relaxed ordering for GPU memory: leave it at 2, automatic");
  }
  RegistrationChoice choice;
  choice.way = way;
  choice.relaxed_ordering = pair.relaxed_ordering && order.relaxed_ordering != RelaxedOrdering::off;
  choice.data_direct = way == RegistrationWay::dmabuf && pair.data_direct;
  choice.reason = pair.adapter + " registers memory of " + pair.gpu.device_name() + " through " +
                  (way == RegistrationWay::dmabuf ? "dma-buf" : pair.peermem) +
                  (choice.data_direct ? " and Data Direct" : "") +
                  (choice.relaxed_ordering ? ", relaxed ordering asked for" : "");
  return choice;
}

RegistrationChoice choose_automatically(const std::string& dmabuf, const std::string& peermem,
                                        const PairFacts& pair, const RegistrationOrder& order) {
  if (dmabuf.empty()) return registered(RegistrationWay::dmabuf, pair, order);
  if (peermem.empty()) {
    RegistrationChoice choice = registered(RegistrationWay::peermem, pair, order);
    choice.reason += "; not through dma-buf: " + dmabuf;
    return choice;
  }
  return staged("no dma-buf: " + dmabuf + "; no peer memory: " + peermem);
}

}  // namespace

const char* way_name(RegistrationWay way) noexcept {
  switch (way) {
    case RegistrationWay::dmabuf: return "dmabuf";
    case RegistrationWay::peermem: return "peermem";
    case RegistrationWay::staged: return "staged";
    case RegistrationWay::refused: break;
  }
  return "refused";
}

RegistrationDemand parse_registration(std::string_view word) {
  using enum RegistrationDemand;
  for (const RegistrationDemand demand : {automatic, dmabuf, peermem, staged}) {
    if (word == demand_name(demand)) return demand;
  }
  throw std::invalid_argument("there is no registration '" + std::string(word) +
                              "': it is auto, dmabuf, peermem or staged");
}

const char* demand_name(RegistrationDemand demand) noexcept {
  switch (demand) {
    case RegistrationDemand::automatic: break;
    case RegistrationDemand::dmabuf: return "dmabuf";
    case RegistrationDemand::peermem: return "peermem";
    case RegistrationDemand::staged: return "staged";
  }
  return "auto";
}

bool is_reachable(const PairFacts& pair, const MemoryFacts& memory) {
  return gpu::is_on_gpu(memory.kind) && refusal_of_memory(pair, memory).empty();
}

RegistrationChoice choose_registration(const PairFacts& pair, const MemoryFacts& memory,
                                       const RegistrationOrder& order) {
  if (!gpu::is_on_gpu(memory.kind) && memory.kind != MemoryKind::managed) {
    return refused("the address belongs to " + std::string(gpu::kind_name(memory.kind)) +
                   ", not to a GPU: register it as a host array");
  }
  if (order.demand == RegistrationDemand::staged) return staged("it was asked for");
  if (pair.software && order.demand == RegistrationDemand::automatic) {
    return staged(pair.adapter + " is software and reaches memory of " + pair.gpu.device_name() +
                  " by copies through the host only: use an RDMA adapter for GPUDirect");
  }
  const std::string unreachable = refusal_of_memory(pair, memory);
  const std::string dmabuf = unreachable.empty() ? refusal_of_dmabuf(pair, memory) : unreachable;
  const std::string peermem = unreachable.empty() ? refusal_of_peermem(pair, memory) : unreachable;
  switch (order.demand) {
    case RegistrationDemand::dmabuf:
      return dmabuf.empty() ? registered(RegistrationWay::dmabuf, pair, order) : refused(dmabuf);
    case RegistrationDemand::peermem:
      return peermem.empty() ? registered(RegistrationWay::peermem, pair, order) : refused(peermem);
    default:
      return unreachable.empty() ? choose_automatically(dmabuf, peermem, pair, order)
                                 : staged(unreachable);
  }
}

}  // namespace zerohop::engine
