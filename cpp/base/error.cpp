#include "base/error.hpp"

#include <system_error>

namespace zerohop {

const char* effect_name(Effect effect) noexcept {
  switch (effect) {
    case Effect::nothing: return "nothing";
    case Effect::some: return "some";
    case Effect::all: return "all";
  }
  return "all";
}

std::string errno_message(const std::string& what, int error_number) {
  return what + ": " + std::generic_category().message(error_number) + " (errno " +
         std::to_string(error_number) + ")";
}

}  // namespace zerohop
