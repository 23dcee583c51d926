// An NVTX tool, like Nsight Systems: exports the functions that NVTX calls after loading the
// library, and puts its own functions into the table that it receives.
#include "nvtx/listener.hpp"

#include <nvtx3/nvToolsExt.h>
#include <unistd.h>

#include <atomic>
#include <mutex>

namespace zerohop::testing {
namespace {

std::atomic<bool> gone{false};  // lives until process exit

struct Listener {
  std::mutex mutex;
  std::vector<std::string> domains;  // a handle is an index, and one
  std::vector<NvtxRange> ranges;     // as is a range
  ~Listener() { gone.store(true); }
};
Listener listener;

std::unique_lock<std::mutex> lock() {
  if (gone.load()) ::_exit(kCalledTooLate);
  return std::unique_lock(listener.mutex);
}

nvtxDomainHandle_t create_domain(const char* name) {
  const auto locked = lock();
  listener.domains.emplace_back(name);
  return reinterpret_cast<nvtxDomainHandle_t>(listener.domains.size());
}

nvtxRangeId_t start(nvtxDomainHandle_t domain, const nvtxEventAttributes_t* event) {
  const auto locked = lock();
  const bool complete = event->version == NVTX_VERSION &&
                        event->size == NVTX_EVENT_ATTRIB_STRUCT_SIZE &&
                        event->messageType == NVTX_MESSAGE_TYPE_ASCII &&
                        event->payloadType == NVTX_PAYLOAD_TYPE_UNSIGNED_INT64;
  listener.ranges.push_back(
      {.domain = listener.domains.at(reinterpret_cast<std::uintptr_t>(domain) - 1),
       .name = complete ? event->message.ascii : "an event of another kind",
       .payload = event->payload.ullValue,
       .ends = 0});
  return listener.ranges.size();
}

void end(nvtxDomainHandle_t, nvtxRangeId_t range) {
  const auto locked = lock();
  ++listener.ranges.at(range - 1).ends;
}

template <typename Function>
void attach(NvtxFunctionTable table, NvtxCallbackIdCore2 id, Function* function) {
  *table[id] = reinterpret_cast<NvtxFunctionPointer>(function);
}

}  // namespace
}  // namespace zerohop::testing

extern "C" {

__attribute__((visibility("default"))) int InitializeInjectionNvtx2(
    NvtxGetExportTableFunc_t get_table) {
  using namespace zerohop::testing;
  const auto* callbacks =
      static_cast<const NvtxExportTableCallbacks*>(get_table(NVTX_ETID_CALLBACKS));
  NvtxFunctionTable table = nullptr;
  unsigned int size = 0;
  if (callbacks == nullptr ||
      callbacks->GetModuleFunctionTable(NVTX_CB_MODULE_CORE2, &table, &size) == 0 ||
      size <= NVTX_CBID_CORE2_DomainCreateA) {
    return 0;
  }
  attach(table, NVTX_CBID_CORE2_DomainCreateA, create_domain);
  attach(table, NVTX_CBID_CORE2_DomainRangeStartEx, start);
  attach(table, NVTX_CBID_CORE2_DomainRangeEnd, end);
  return 1;
}

__attribute__((visibility("default"))) void nvtx_ranges(
    std::vector<zerohop::testing::NvtxRange>& ranges) {
  using namespace zerohop::testing;
  const auto locked = lock();
  ranges = listener.ranges;
}

}  // extern "C"
