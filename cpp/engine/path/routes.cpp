#include "engine/path/routes.hpp"

#include <bit>
#include <string>
#include <utility>

namespace zerohop::engine {
namespace {

// Not std::has_single_bit, which is a function call if the compiler may not use POPCNT.
bool is_single(RailMask mask) { return (mask & (mask - 1)) == 0; }

// "rxe0, rxe1 and rxe2", "rxe0,rxe1,rxe2"
std::string list_names(const Rails& rails, RailMask mask, const char* comma,
                       const char* last_comma) {
  std::string text;
  for (const auto& rail : rails) {
    const RailMask bit = RailMask{1} << rail->index();
    if ((mask & bit) == 0) continue;
    const bool is_last = (mask & ~(bit | (bit - 1))) == 0;
    if (!text.empty()) text += is_last ? last_comma : comma;
    text += rail->name();
  }
  return text;
}

// The kind as a Route names it: software has no GPUDirect.
const char* name_of(Routes::Kind kind, const Rail& rail) {
  if (kind == Routes::Kind::host) return "host";
  return kind == Routes::Kind::gpu && !rail.software() ? "gpudirect" : "staged";
}

}  // namespace

Routes::Routes(const Rails& rails, std::shared_ptr<RouteBook> book)
    : rails_(rails), book_(std::move(book)) {
  for (const auto& rail : rails_) {
    // Counters exist from the start for all kinds, even if only host memory is ever moved.
    for (const Kind kind : {Kind::gpu, Kind::staged}) book_->of(name_of(kind, *rail), rail->name());
    host_.push_back(make(Kind::host, RailMask{1} << rail->index()));
  }
}

Routes::RoutePtr Routes::over(Kind kind, RailMask mask) const {
  if (kind == Kind::host && is_single(mask)) {
    return host_[static_cast<std::size_t>(std::countr_zero(mask))];
  }
  const std::lock_guard lock(mutex_);
  RoutePtr& known = others_[{kind, mask}];
  if (!known) known = make(kind, mask);
  return known;
}

Routes::RoutePtr Routes::make(Kind kind, RailMask mask) const {
  const bool one = is_single(mask);
  const Rail& first = *rails_[static_cast<std::size_t>(std::countr_zero(mask))];
  const std::string names = list_names(rails_, mask, ", ", " and ");
  const std::string act = one ? " reads and writes" : " read and write";
  const std::string self = one ? " by itself; " : " by themselves, each an equal share; ";
  Route route{.kind = name_of(kind, first),
              .device = list_names(rails_, mask, ",", ","),
              .reason = {},
              .settings = {}};
  const std::string serve = one ? " serves because " : " serve because ";
  if (kind == Kind::host) {
    route.reason = "both arrays lie in host memory, which " + names + act + self + names + serve;
  } else if (kind == Kind::staged) {
    route.reason =
        "GPU memory that no device reaches by itself goes through pinned chunks of the "
        "host, which " +
        names + act + self + names + serve;
  } else if (first.software()) {
    route.reason = names + (one ? " is software and copies" : " are software and copy") +
                   " GPU memory through pinned chunks of the host, as there is no RDMA adapter "
                   "that can reach it (GPUDirect); " +
                   (one ? "it" : "they") + serve;
  } else {
    route.reason = names + act + " GPU memory" + self + (one ? "it" : "they") + serve;
  }
  route.reason += first.reason();
  route.stats = book_->of(route.kind, route.device);
  return std::make_shared<const Route>(std::move(route));
}

}  // namespace zerohop::engine
