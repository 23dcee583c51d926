#include "base/layout.hpp"

#include <limits>
#include <stdexcept>

namespace zerohop {
namespace {

// Wide enough for the product of two 64-bit values.
__extension__ using Wide = __int128;

bool fits_address(Wide value) {
  return value >= 0 && value <= Wide{std::numeric_limits<std::uint64_t>::max()};
}

[[noreturn]] void refuse(const std::string& what) { throw std::invalid_argument(what); }

}  // namespace

Layout Layout::contiguous(std::uint64_t address, DType dtype, std::span<const std::int64_t> shape) {
  Layout layout{address, dtype, Dims(shape), Dims::zeros(shape.size())};
  // Unsigned: an absurd shape wraps here, and validate() refuses it.
  std::uint64_t stride = dtype.itemsize();
  for (std::size_t i = shape.size(); i-- > 0;) {
    layout.strides[i] = static_cast<std::int64_t>(stride);
    stride *= static_cast<std::uint64_t>(shape[i]);
  }
  return layout;
}

Layout Layout::bytes(std::uint64_t address, std::uint64_t nbytes) {
  const auto size = static_cast<std::int64_t>(nbytes);
  return contiguous(address, DType{}, std::span(&size, 1));
}

void Layout::validate() const {
  if (!dtype.supported()) {
    refuse(dtype.name() + " is not supported; use one of " + std::string(supported_dtypes()));
  }
  if (shape.size() != strides.size()) {
    refuse("shape and strides differ in length: " + std::to_string(shape.size()) + " and " +
           std::to_string(strides.size()));
  }
  Wide packed = itemsize();
  bool without_elements = false;
  for (std::int64_t size : shape) {
    if (size < 0) refuse("the shape " + shape_string(shape.span()) + " has a negative dimension");
    if (size == 0) without_elements = true;
    // Skip sizes of 0: the product of the others must not wrap in count(), whatever their order.
    if (size > 0) packed *= size;
    if (packed > std::numeric_limits<std::int64_t>::max()) {
      refuse("the shape " + shape_string(shape.span()) + " is larger than the address space");
    }
  }
  if (without_elements) return;
  Wide lowest = address;
  Wide highest = Wide{address} + itemsize();
  for (std::size_t i = 0; i < ndim(); ++i) {
    const Wide reach = Wide{shape[i] - 1} * strides[i];
    (reach < 0 ? lowest : highest) += reach;
  }
  if (!fits_address(lowest) || !fits_address(highest)) {
    refuse("an array of shape " + shape_string(shape.span()) + " with strides " +
           shape_string(strides.span()) + " at address " + std::to_string(address) +
           " leaves the address space");
  }
}

std::uint64_t Layout::count() const noexcept {
  std::uint64_t elements = 1;
  for (std::int64_t size : shape) elements *= static_cast<std::uint64_t>(size);
  return elements;
}

bool Layout::is_contiguous() const noexcept {
  std::int64_t expected = itemsize();
  bool dense = true;
  for (std::size_t i = ndim(); i-- > 0;) {
    if (shape[i] == 0) return true;
    if (shape[i] == 1) continue;  // its stride is never used
    if (strides[i] != expected) dense = false;
    // After a gap only an empty dimension matters, and the product could overflow.
    if (dense) expected *= shape[i];
  }
  return dense;
}

Extent Layout::extent() const noexcept {
  if (count() == 0) return {address, address};
  Extent extent{address, address + itemsize()};
  for (std::size_t i = 0; i < ndim(); ++i) {
    // Unsigned, because half the address space and more does not fit a signed product.
    const auto reach =
        static_cast<std::uint64_t>(shape[i] - 1) * static_cast<std::uint64_t>(strides[i]);
    (strides[i] < 0 ? extent.begin : extent.end) += reach;
  }
  return extent;
}

std::string shape_string(std::span<const std::int64_t> shape) {
  std::string text = "(";
  for (std::size_t i = 0; i < shape.size(); ++i) {
    if (i > 0) text += ", ";
    text += std::to_string(shape[i]);
  }
  return text + (shape.size() == 1 ? ",)" : ")");
}

void check_same_shape(const Layout& source, const Layout& destination) {
  if (source.shape != destination.shape) {
    refuse("shapes differ: the source is " + shape_string(source.shape.span()) +
           " and the destination " + shape_string(destination.shape.span()) +
           "; slice one of them, or reshape() it");
  }
  if (source.dtype != destination.dtype) {
    refuse("dtypes differ: the source is " + source.dtype.name() + " and the destination " +
           destination.dtype.name() + "; transfers do not convert");
  }
}

}  // namespace zerohop
