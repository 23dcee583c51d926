#include "driver/rdmacm.hpp"

#include <utility>

#include "base/dynlib.hpp"

namespace zerohop::driver {

RdmaCmLibrary load_rdmacm(const char* soname) {
  const std::string refusal = "rdma_cm cannot connect queue pairs because " + std::string(soname);
  const DynamicLibrary library(soname);
  if (!library) {
    return {nullptr, refusal + " cannot be loaded (" + library.reason() +
                         "): install librdmacm1 (Debian, Ubuntu) or librdmacm (Fedora, RHEL)"};
  }
  auto functions = std::make_shared<RdmaCm>();
#define ZEROHOP_RDMACM_FILL(member, symbol, version)                                 \
  functions->member =                                                                \
      reinterpret_cast<decltype(functions->member)>(library.find(#symbol, version)); \
  if (functions->member == nullptr)                                                  \
    return {nullptr, refusal + " lacks " #symbol "@" version ": install a newer rdma-core"};
  ZEROHOP_RDMACM(ZEROHOP_RDMACM_FILL)
#undef ZEROHOP_RDMACM_FILL
  return {std::move(functions), ""};
}

const RdmaCmLibrary& librdmacm() {
  static const auto* const library =
      new RdmaCmLibrary(load_rdmacm("librdmacm.so.1"));  // until exit
  return *library;
}

}  // namespace zerohop::driver
