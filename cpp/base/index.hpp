// numpy's basic indexing: integers, slices, ... and newaxis select a part of an array without a
// copy.
#pragma once

#include <cstdint>
#include <limits>
#include <span>
#include <variant>

#include "base/layout.hpp"

namespace zerohop {

// start:stop:step as PySlice_Unpack returns it: negative values count from the end, values beyond
// the ends are clipped, and an absent bound is the extreme value of its direction.
struct Slice {
  std::int64_t start = 0;
  std::int64_t stop = std::numeric_limits<std::int64_t>::max();
  std::int64_t step = 1;
};

struct EllipsisIndex {};  // expands to the missing full slices; at most one
struct NewAxis {};        // a dimension of size 1

using Index = std::variant<std::int64_t, Slice, EllipsisIndex, NewAxis>;

// Missing trailing indices are full slices. Throws std::out_of_range for an integer out of bounds
// or too many indices, std::invalid_argument for a zero step.
Layout apply_index(const Layout& layout, std::span<const Index> indices);

}  // namespace zerohop
