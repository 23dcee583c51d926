// Where the elements of an array lie: address, element type, shape and strides. It owns no memory,
// and its address may belong to another process or device.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>

#include "base/dims.hpp"
#include "base/dtype.hpp"

namespace zerohop {

// Addresses [begin, end); begin == end for an empty array.
struct Extent {
  std::uint64_t begin = 0;
  std::uint64_t end = 0;
};

struct Layout {
  std::uint64_t address = 0;  // of the element with index (0, 0, ...)
  DType dtype;
  Dims shape;
  Dims strides;  // bytes, one per dimension, may be negative or 0

  // C order without gaps.
  static Layout contiguous(std::uint64_t address, DType dtype, std::span<const std::int64_t> shape);
  static Layout bytes(std::uint64_t address, std::uint64_t nbytes);  // one dimension

  // Throws std::invalid_argument unless the type is supported, shape and strides agree, no
  // dimension is negative, and every element lies inside the 64-bit address space. Layouts made
  // from foreign values (DLPack, buffers, the wire) are validated once; all other members rely on
  // that.
  void validate() const;

  std::size_t ndim() const noexcept { return shape.size(); }
  std::uint32_t itemsize() const noexcept { return dtype.itemsize(); }
  std::uint64_t count() const noexcept;                                   // elements
  std::uint64_t nbytes() const noexcept { return count() * itemsize(); }  // packed, without gaps
  bool is_contiguous() const noexcept;  // C order; true for empty arrays
  Extent extent() const noexcept;       // from the lowest to one past the highest byte touched

  friend bool operator==(const Layout&, const Layout&) = default;
};

// "(4, 1024)", "(3,)", "()", as Python writes shapes.
std::string shape_string(std::span<const std::int64_t> shape);

// Throws std::invalid_argument that names both sides unless shape and dtype agree.
void check_same_shape(const Layout& source, const Layout& destination);

}  // namespace zerohop
