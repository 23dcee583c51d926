// The same bytes as elements of another type.
#pragma once

#include "base/layout.hpp"

namespace zerohop {

// Another item size scales the last axis. Throws std::invalid_argument where that is not possible
// without a copy: no axis, gaps between the elements of the last one, a last axis or strides that
// the new item size does not divide, or an address that it does not divide.
Layout view(const Layout& layout, DType dtype);

}  // namespace zerohop
