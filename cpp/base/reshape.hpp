// The same elements under another shape.
#pragma once

#include <cstdint>
#include <span>

#include "base/layout.hpp"

namespace zerohop {

// C order; one size may be -1 and is inferred. Throws std::invalid_argument for an array with gaps,
// whose elements would have to be copied, and for a different number of elements.
Layout reshape(const Layout& layout, std::span<const std::int64_t> shape);

}  // namespace zerohop
