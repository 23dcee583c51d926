// The same bytes as elements of another type.
#pragma once

#include "base/layout.hpp"

namespace zerohop {

// A different item size scales the last axis. Throws std::invalid_argument where that would need a
// copy: no axis, gaps between the elements of the last axis, or a last axis, strides or an address
// that the new item size does not divide.
Layout view(const Layout& layout, DType dtype);

}  // namespace zerohop
