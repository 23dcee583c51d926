#include "driver/verbs.hpp"

#include <utility>

#include "base/dynlib.hpp"

namespace zerohop::driver {
namespace {

constexpr const char* kSoname = "libibverbs.so.1";  // ".so" alone is a link of the -dev package

template <typename Function>
void fill(Function& member, const DynamicLibrary& library, const char* symbol,
          const char* version) {
  member = reinterpret_cast<Function>(library.find(symbol, version));
}

// The first required symbol that is missing, or null.
const char* fill_required(Verbs& verbs, const DynamicLibrary& library) {
#define ZEROHOP_VERBS_FILL(member, symbol, version) \
  fill(verbs.member, library, #symbol, version);    \
  if (verbs.member == nullptr) return #symbol "@" version;
  ZEROHOP_VERBS_REQUIRED(ZEROHOP_VERBS_FILL)
#undef ZEROHOP_VERBS_FILL
  fill(verbs.query_port, library, "ibv_query_port", "IBVERBS_1.1");
  if (verbs.query_port == nullptr) return "ibv_query_port@IBVERBS_1.1";
  fill(verbs.reg_mr, library, "ibv_reg_mr", "IBVERBS_1.1");
  if (verbs.reg_mr == nullptr) return "ibv_reg_mr@IBVERBS_1.1";
  return nullptr;
}

void fill_optional(Verbs& verbs, const DynamicLibrary& library) {
#define ZEROHOP_VERBS_FILL(member, symbol, version) fill(verbs.member, library, #symbol, version);
  ZEROHOP_VERBS_OPTIONAL(ZEROHOP_VERBS_FILL)
  ZEROHOP_VERBS_OF_ADAPTERS(ZEROHOP_VERBS_FILL)
#undef ZEROHOP_VERBS_FILL
}

}  // namespace

VerbsLibrary load_verbs(const char* soname) {
  const DynamicLibrary library(soname);
  if (!library) {
    return {nullptr, "RDMA adapters cannot be used because " + std::string(soname) +
                         " cannot be loaded (" + library.reason() +
                         "): install libibverbs1 and ibverbs-providers (Debian, Ubuntu) or "
                         "rdma-core (Fedora, RHEL), or use the device soft0"};
  }
  auto verbs = std::make_shared<Verbs>();
  verbs->provider = "libibverbs";
  if (const char* missing = fill_required(*verbs, library)) {
    return {nullptr, "RDMA adapters cannot be used because " + std::string(soname) + " lacks " +
                         missing + ": install a newer rdma-core, or use the device soft0"};
  }
  fill_optional(*verbs, library);
  return {std::move(verbs), ""};
}

const VerbsLibrary& libibverbs() {
  static const auto* const library = new VerbsLibrary(load_verbs(kSoname));  // used until exit
  return *library;
}

}  // namespace zerohop::driver
