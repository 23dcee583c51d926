#include "engine/registration_probe.hpp"

#include <sys/utsname.h>

#include <cerrno>
#include <cstdio>

#include "base/error.hpp"
#include "driver/cuda_call.hpp"
#include "gpu/device_guard.hpp"
#include "gpu/dmabuf.hpp"
#include "gpu/peermem.hpp"

namespace zerohop::engine {
namespace {

constexpr std::uint64_t kProbeBytes = 64 << 10;  // a page of the GPU
constexpr int kAccess = IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ;
constexpr int kRelaxed = kAccess | IBV_ACCESS_RELAXED_ORDERING;

// A little GPU memory. The caller has made the device current.
class ProbeMemory {
 public:
  explicit ProbeMemory(const driver::Cuda& cuda) : cuda_(cuda) {
    driver::check_cuda(cuda_, cuda_.memory_allocate(&address_, kProbeBytes),
                       "cuMemAlloc of 64 KiB to try registrations with");
  }
  ~ProbeMemory() { (void)cuda_.memory_free(address_); }
  ProbeMemory(const ProbeMemory&) = delete;
  ProbeMemory& operator=(const ProbeMemory&) = delete;

  Extent extent() const noexcept { return {address_, address_ + kProbeBytes}; }

 private:
  const driver::Cuda& cuda_;
  driver::CudaAddress address_ = 0;
};

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
  char path[256];
  return adapter.mlx5dv != nullptr &&
         adapter.mlx5dv->get_data_direct_sysfs_path(adapter.domain->device().context(), path,
                                                    sizeof path) == 0;
}

// Whether the adapter registers dma-bufs at all: it answers EBADF to a descriptor that is none.
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
  facts.dmabuf = {.made = true, .error_number = ask_for_dmabuf(adapter)};
  if (facts.dmabuf.worked()) facts.dmabuf = with(kAccess, false);
  if (!facts.dmabuf.worked()) return;
  facts.data_direct = has_data_direct(adapter) && with(kAccess, true).worked();
  facts.relaxed_ordering = with(kRelaxed, facts.data_direct).worked();
}

void probe_peermem(const Adapter& adapter, const Extent& memory, PairFacts& facts) {
  const auto with = [&](int access) {
    return try_it([&] {
      return rdma::MemoryRegion::create(adapter.domain, reinterpret_cast<void*>(memory.begin),
                                        memory.end - memory.begin, access);
    });
  };
  facts.peermem_trial = with(kAccess);
  if (!facts.peermem_trial.worked() || facts.dmabuf.worked()) return;
  facts.relaxed_ordering =
      adapter.domain->verbs().reg_mr_iova2 != nullptr && with(kRelaxed).worked();
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
  // Through Data Direct the adapter reaches what is mapped for PCIe, and nothing else does: such a
  // dma-buf registers in the usual way too, and fails when it is used.
  const gpu::Dmabuf dmabuf = gpu::export_dmabuf(
      device, range, data_direct ? gpu::DmabufMapping::pcie : gpu::DmabufMapping::usual);
  return rdma::MemoryRegion::create_dmabuf(adapter.domain,
                                           {.fd = dmabuf.fd.get(),
                                            .offset = dmabuf.offset,
                                            .nbytes = range.end - range.begin,
                                            .address = range.begin},
                                           access, data_direct ? adapter.mlx5dv.get() : nullptr);
}

PairFacts probe_pair(const Adapter& adapter, const gpu::Device& device, const HostFacts& host) {
  PairFacts facts;
  facts.adapter = adapter.domain->device().name();
  facts.kernel = host.kernel;
  facts.peermem = host.peermem;
  facts.software = adapter.domain->verbs().reg_copied_mr != nullptr;
  facts.library_has_dmabuf = adapter.domain->verbs().reg_dmabuf_mr != nullptr;
  facts.gpu = device.facts();
  if (!facts.gpu.gpudirect) return facts;  // nothing to try
  const gpu::DeviceGuard guard(device);
  const ProbeMemory memory(device.cuda());
  if (facts.gpu.dmabuf && facts.library_has_dmabuf) {
    probe_dmabuf(adapter, device, memory.extent(), facts);
  }
  if (!facts.peermem.empty()) probe_peermem(adapter, memory.extent(), facts);
  return facts;
}

}  // namespace zerohop::engine
