#include "base/index.hpp"

#include <algorithm>
#include <stdexcept>
#include <string>

namespace zerohop {
namespace {

// Builds the result dimension by dimension.
class Selection {
 public:
  explicit Selection(const Layout& source) : source_(source), address_(source.address) {}

  std::size_t left() const noexcept { return source_.ndim() - axis_; }

  void keep(std::size_t axes) {
    for (; axes > 0; --axes, ++axis_) {
      shape_.push_back(source_.shape[axis_]);
      strides_.push_back(source_.strides[axis_]);
    }
  }

  void add_axis() {
    shape_.push_back(1);
    strides_.push_back(0);
  }

  void pick(std::int64_t index) {
    const std::int64_t size = source_.shape[axis_];
    if (index < -size || index >= size) {
      throw std::out_of_range("index " + std::to_string(index) + " is out of bounds for axis " +
                              std::to_string(axis_) + " with size " + std::to_string(size));
    }
    move_address(index < 0 ? index + size : index);
    ++axis_;
  }

  void cut(const Slice& slice) {
    if (slice.step == 0) throw std::invalid_argument("the step of a slice cannot be zero");
    const std::int64_t size = source_.shape[axis_];
    const bool forward = slice.step > 0;
    const std::int64_t lowest = forward ? 0 : -1;
    const std::int64_t highest = forward ? size : size - 1;
    const auto clip = [&](std::int64_t bound) {
      return std::clamp(bound < 0 ? bound + size : bound, lowest, highest);
    };
    const std::int64_t start = clip(slice.start);
    const std::int64_t distance = forward ? clip(slice.stop) - start : start - clip(slice.stop);
    const std::uint64_t step = magnitude(slice.step);
    const std::uint64_t length =
        distance <= 0 ? 0 : (static_cast<std::uint64_t>(distance) - 1) / step + 1;
    if (length > 0) move_address(start);
    shape_.push_back(static_cast<std::int64_t>(length));
    // A stride that is never walked may have any value: with a huge step it would overflow.
    std::int64_t stride = 0;
    if (__builtin_mul_overflow(source_.strides[axis_], slice.step, &stride)) stride = 0;
    strides_.push_back(stride);
    ++axis_;
  }

  Layout finish() && {
    keep(left());
    return {address_, source_.dtype, std::move(shape_), std::move(strides_)};
  }

 private:
  // |INT64_MIN| does not fit an int64.
  static std::uint64_t magnitude(std::int64_t value) noexcept {
    return value < 0 ? 0 - static_cast<std::uint64_t>(value) : static_cast<std::uint64_t>(value);
  }

  void move_address(std::int64_t index) noexcept {
    address_ +=
        static_cast<std::uint64_t>(index) * static_cast<std::uint64_t>(source_.strides[axis_]);
  }

  const Layout& source_;
  std::uint64_t address_;
  std::size_t axis_ = 0;
  Dims shape_;
  Dims strides_;
};

// How many dimensions the indices consume, without the ellipsis.
std::size_t count_used(std::span<const Index> indices, std::size_t ndim) {
  std::size_t used = 0;
  bool ellipsis_seen = false;
  for (const Index& index : indices) {
    if (std::holds_alternative<EllipsisIndex>(index)) {
      if (ellipsis_seen)
        throw std::out_of_range("an index can only have a single ellipsis ('...')");
      ellipsis_seen = true;
    } else if (!std::holds_alternative<NewAxis>(index)) {
      ++used;
    }
  }
  if (used > ndim) {
    throw std::out_of_range("too many indices: the array is " + std::to_string(ndim) +
                            "-dimensional, but " + std::to_string(used) + " were indexed");
  }
  return used;
}

}  // namespace

Layout apply_index(const Layout& layout, std::span<const Index> indices) {
  const std::size_t skipped = layout.ndim() - count_used(indices, layout.ndim());
  Selection selection(layout);
  for (const Index& index : indices) {
    if (const auto* position = std::get_if<std::int64_t>(&index)) {
      selection.pick(*position);
    } else if (const auto* slice = std::get_if<Slice>(&index)) {
      selection.cut(*slice);
    } else if (std::holds_alternative<NewAxis>(index)) {
      selection.add_axis();
    } else {
      selection.keep(skipped);
    }
  }
  return std::move(selection).finish();
}

}  // namespace zerohop
