#include "engine/memory/registration_probe.hpp"

#include <sys/utsname.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>

#include "base/error.hpp"
#include "gpu/dmabuf.hpp"
#include "gpu/peermem.hpp"

namespace zerohop::engine {
namespace {

constexpr int kAccess = IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ;
constexpr int kRelaxed = kAccess | IBV_ACCESS_RELAXED_ORDERING;

// Trials use no more than this of the memory at hand: a GPU page.
constexpr std::uint64_t kProbeBytes = 64 << 10;

// Whether the first trial of a way would end the same with any memory at any time. Other failures
// may be specific to this memory (some is not exportable), or transient (the GPU's window is used
// up).
bool is_final(const Trial& trial) noexcept {
  return trial.worked() || trial.error_number == EOPNOTSUPP ||
         trial.error_number == EPROTONOSUPPORT || trial.error_number == ENOSYS;
}

// For another trial of memory that is registered in the usual way: whether the result is permanent.
bool is_final_variant(const Trial& trial) noexcept {
  switch (trial.error_number) {
    case ENOMEM:
    case ENOSPC:
    case EAGAIN:
    case EINTR:
    case EBUSY: return false;
    default: return trial.cuda_error != driver::kCudaErrorOutOfMemory;
  }
}

template <typename Register>
Trial try_it(Register register_it) {
  Trial outcome{.made = true};
  try {
    (void)register_it();
  } catch (const CudaError& error) {
    outcome.cuda_error = error.code();
  } catch (const RegistrationError& error) {
    outcome.error_number = error.code();
  }
  return outcome;
}

bool has_data_direct(const Adapter& adapter) {
  return adapter.mlx5dv != nullptr &&
         driver::has_data_direct(*adapter.mlx5dv, adapter.domain->device().context());
}

// Whether the adapter registers dma-bufs at all: if so, an invalid descriptor yields EBADF.
int ask_for_dmabuf(const Adapter& adapter) {
  errno = 0;
  ibv_mr* region = adapter.domain->verbs().reg_dmabuf_mr(adapter.domain->handle(), 0, kProbeBytes,
                                                         0, /*fd=*/-1, kAccess);
  if (region != nullptr) {  // no correct driver does that
    adapter.domain->verbs().dereg_mr(region);
    return EPROTO;
  }
  return errno == EBADF ? 0 : errno;
}

void probe_dmabuf(const Adapter& adapter, const gpu::Device& device, const Extent& memory,
                  PairFacts& facts) {
  const auto with = [&](int access, bool data_direct) {
    return try_it([&] { return register_dmabuf(adapter, device, memory, access, data_direct); });
  };
  const auto variant_works = [&](int access, bool data_direct) {
    const Trial trial = with(access, data_direct);
    if (!is_final_variant(trial)) facts.lasting = false;
    return trial.worked();
  };
  facts.dmabuf = {.made = true, .error_number = ask_for_dmabuf(adapter)};
  if (facts.dmabuf.worked()) facts.dmabuf = with(kAccess, false);
  if (!is_final(facts.dmabuf)) facts.lasting = false;
  if (!facts.dmabuf.worked()) return;
  facts.data_direct = has_data_direct(adapter) && variant_works(kAccess, true);
  facts.relaxed_ordering = variant_works(kRelaxed, facts.data_direct);
}

void probe_peermem(const Adapter& adapter, const Extent& memory, PairFacts& facts) {
  const auto with = [&](int access) {
    return try_it([&] {
      return rdma::MemoryRegion::create(adapter.domain, reinterpret_cast<void*>(memory.begin),
                                        memory.end - memory.begin, access);
    });
  };
  facts.peermem_trial = with(kAccess);
  // If the memory works as a dma-buf it is sound, so it is the RDMA driver that does not use the
  // module.
  const bool sound = facts.dmabuf.worked();
  if (!(sound ? is_final_variant : is_final)(facts.peermem_trial)) facts.lasting = false;
  if (!facts.peermem_trial.worked() || facts.dmabuf.worked()) return;
  if (adapter.domain->verbs().reg_mr_iova2 == nullptr) return;
  const Trial relaxed = with(kRelaxed);
  facts.relaxed_ordering = relaxed.worked();
  if (!is_final_variant(relaxed)) facts.lasting = false;
}

}  // namespace

HostFacts ask_host() {
  HostFacts facts;
  utsname system{};
  int major = 0, minor = 0;
  if (::uname(&system) == 0 && std::sscanf(system.release, "%d.%d", &major, &minor) == 2) {
    facts.kernel = 1000 * major + minor;
  }
  facts.peermem = gpu::find_peermem();
  return facts;
}

std::shared_ptr<rdma::MemoryRegion> register_dmabuf(const Adapter& adapter,
                                                    const gpu::Device& device, const Extent& range,
                                                    int access, bool data_direct) {
  // Through Data Direct the adapter reaches only what is mapped for PCIe, and nothing else reaches
  // that: such a dma-buf registers in the usual way too, and fails when it is used.
  const gpu::Dmabuf dmabuf = gpu::export_dmabuf(
      device, range, data_direct ? gpu::DmabufMapping::pcie : gpu::DmabufMapping::usual);
  return rdma::MemoryRegion::create_dmabuf(adapter.domain,
                                           {.fd = dmabuf.fd.get(),
                                            .offset = dmabuf.offset,
                                            .nbytes = range.end - range.begin,
                                            .address = range.begin},
                                           access, data_direct ? adapter.mlx5dv.get() : nullptr);
}

PairFacts ask_pair(const Adapter& adapter, const gpu::Device& device, const HostFacts& host) {
  PairFacts facts;
  facts.adapter = adapter.domain->device().name();
  facts.kernel = host.kernel;
  facts.peermem = host.peermem;
  facts.software = adapter.domain->verbs().reg_copied_mr != nullptr;
  facts.library_has_dmabuf = adapter.domain->verbs().reg_dmabuf_mr != nullptr;
  facts.gpu = device.facts();
  return facts;
}

void probe_pair(const Adapter& adapter, const gpu::Device& device, const Extent& memory,
                PairFacts& facts) {
  const Extent part{memory.begin, std::min(memory.end, memory.begin + kProbeBytes)};
  facts.lasting = true;
  if (facts.gpu.dmabuf && facts.library_has_dmabuf) probe_dmabuf(adapter, device, part, facts);
  if (!facts.peermem.empty()) probe_peermem(adapter, part, facts);
}

}  // namespace zerohop::engine
