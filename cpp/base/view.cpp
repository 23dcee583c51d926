#include "base/view.hpp"

#include <stdexcept>
#include <string>

namespace zerohop {
namespace {

[[noreturn]] void refuse(const Layout& layout, DType dtype, const std::string& why) {
  throw std::invalid_argument("an array of shape " + shape_string(layout.shape.span()) + " of " +
                              layout.dtype.name() + " is not viewed as " + dtype.name() + ": " +
                              why);
}

bool has_gaps_in_rows(const Layout& layout) {
  const std::size_t last = layout.ndim() - 1;
  return layout.shape[last] != 1 && layout.count() > 0 &&
         layout.strides[last] != std::int64_t{layout.itemsize()};
}

// Each element of `itemsize` bytes must begin at a multiple of that, as GPUs require.
void check_aligned(const Layout& layout, DType dtype) {
  const std::int64_t itemsize = dtype.itemsize();
  if (layout.address % dtype.itemsize() != 0) {
    refuse(layout, dtype,
           "its address " + std::to_string(layout.address) + " is not a multiple of " +
               std::to_string(itemsize) + "; begin the slice at another element");
  }
  for (std::size_t i = 0; i + 1 < layout.ndim(); ++i) {
    if (layout.shape[i] > 1 && layout.strides[i] % itemsize != 0) {
      refuse(layout, dtype,
             "its strides " + shape_string(layout.strides.span()) + " are not multiples of " +
                 std::to_string(itemsize) + "; slice another part, or copy it");
    }
  }
}

}  // namespace

Layout view(const Layout& layout, DType dtype) {
  Layout same = layout;
  same.dtype = dtype;
  const std::int64_t before = layout.itemsize();
  const std::int64_t after = dtype.itemsize();
  if (before == after) return same;
  if (layout.ndim() == 0) refuse(layout, dtype, "it has no axis to scale; reshape(1) it first");
  if (has_gaps_in_rows(layout)) {
    refuse(layout, dtype,
           "its last axis has gaps, the strides are " + shape_string(layout.strides.span()) +
               "; view before slicing, or copy it");
  }
  const std::size_t last = layout.ndim() - 1;
  const std::int64_t nbytes = layout.shape[last] * before;
  if (nbytes % after != 0) {
    refuse(layout, dtype,
           "the " + std::to_string(nbytes) + " bytes of its last axis are not a whole number of " +
               dtype.name() + " (" + std::to_string(after) +
               " bytes each); give it another size, or reshape() it first");
  }
  if (layout.count() > 0 && after > before) check_aligned(layout, dtype);
  same.shape[last] = nbytes / after;
  same.strides[last] = after;
  return same;
}

}  // namespace zerohop
