#include "base/reshape.hpp"

#include <algorithm>
#include <optional>
#include <stdexcept>
#include <string>

namespace zerohop {
namespace {

constexpr std::int64_t kRest = -1;

// Null for a negative size, and for products beyond the address space.
std::optional<std::int64_t> product(std::span<const std::int64_t> sizes) {
  std::int64_t elements = 1;
  bool fits = true;
  for (const std::int64_t size : sizes) {
    if (size < 0) return std::nullopt;
    if (size == 0) return 0;
    fits = !__builtin_mul_overflow(elements, size, &elements) && fits;
  }
  return fits ? std::optional(elements) : std::nullopt;
}

}  // namespace

Layout reshape(const Layout& layout, std::span<const std::int64_t> shape) {
  if (!layout.is_contiguous()) {
    throw std::invalid_argument(
        "an array with gaps has no other shape without a copy: its shape is " +
        shape_string(layout.shape.span()) + ", its strides are " +
        shape_string(layout.strides.span()));
  }
  Dims sizes(shape);
  std::int64_t* const rest = std::find(sizes.data(), sizes.data() + sizes.size(), kRest);
  const bool has_rest = rest != sizes.data() + sizes.size();
  if (has_rest) *rest = 1;
  const auto count = static_cast<std::int64_t>(layout.count());
  const std::optional<std::int64_t> known = product(sizes.span());
  const bool divides = has_rest && known && *known > 0 && count % *known == 0;
  if (has_rest ? !divides : known != count) {
    throw std::invalid_argument("an array of shape " + shape_string(layout.shape.span()) + " has " +
                                std::to_string(count) + " elements, which do not make " +
                                shape_string(shape));
  }
  if (has_rest) *rest = count / *known;
  return Layout::contiguous(layout.address, layout.dtype, sizes.span());
}

}  // namespace zerohop
