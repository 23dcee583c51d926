#include "base/runs.hpp"

#include <stdexcept>

namespace zerohop {

Runs::Runs(const Layout& a, const Layout& b)
    : a_address_(a.address), b_address_(b.address), run_nbytes_(a.itemsize()) {
  if (a.shape != b.shape || a.itemsize() != b.itemsize()) {
    throw std::invalid_argument("a copy needs equal shapes and item sizes, not " +
                                shape_string(a.shape.span()) + " of " + a.dtype.name() + " and " +
                                shape_string(b.shape.span()) + " of " + b.dtype.name());
  }
  if (a.count() == 0) return;
  add_axes(a, b);
  merge_axes();
  count_ = 1;
  for (std::size_t i = 0; i < naxes_; ++i) count_ *= static_cast<std::uint64_t>(axes_[i].size);
  left_ = count_;
}

// Takes every dimension of more than one element. A dimension that both sides walk backwards is
// reversed, so that reversed arrays merge like others.
void Runs::add_axes(const Layout& a, const Layout& b) noexcept {
  for (std::size_t i = 0; i < a.ndim(); ++i) {
    if (a.shape[i] == 1) continue;
    Axis axis{a.shape[i], a.strides[i], b.strides[i], 0};
    if (axis.a_stride < 0 && axis.b_stride < 0) {
      a_address_ += static_cast<std::uint64_t>(axis.a_stride * (axis.size - 1));
      b_address_ += static_cast<std::uint64_t>(axis.b_stride * (axis.size - 1));
      axis.a_stride = -axis.a_stride;
      axis.b_stride = -axis.b_stride;
    }
    axes_[naxes_++] = axis;
  }
}

// Extends the run by any dimension whose stride equals the run's length on both sides: two arrays
// in the same permuted order (Fortran, channels-last) copy as well as in C order.
void Runs::merge_axes() noexcept {
  for (std::size_t i = naxes_; i-- > 0;) {
    const auto length = static_cast<std::int64_t>(run_nbytes_);
    if (axes_[i].a_stride != length || axes_[i].b_stride != length) continue;
    run_nbytes_ *= static_cast<std::uint64_t>(axes_[i].size);
    for (std::size_t j = i + 1; j < naxes_; ++j) axes_[j - 1] = axes_[j];
    --naxes_;
    i = naxes_;  // the longer run may now reach a dimension that did not fit before
  }
}

bool Runs::next(Run& run) noexcept {
  if (left_ == 0) return false;
  run = {a_address_, b_address_, run_nbytes_};
  if (--left_ > 0) advance();
  return true;
}

void Runs::skip(std::uint64_t runs) noexcept {
  left_ -= runs < left_ ? runs : left_;
  std::uint64_t position = count_ - left_;  // in next() order: the last axis varies fastest
  for (std::size_t i = naxes_; i-- > 0 && left_ > 0;) {
    Axis& axis = axes_[i];
    const auto size = static_cast<std::uint64_t>(axis.size);
    const auto index = static_cast<std::int64_t>(position % size);
    position /= size;
    a_address_ += static_cast<std::uint64_t>((index - axis.index) * axis.a_stride);
    b_address_ += static_cast<std::uint64_t>((index - axis.index) * axis.b_stride);
    axis.index = index;
  }
}

void Runs::advance() noexcept {
  for (std::size_t i = naxes_; i-- > 0;) {
    Axis& axis = axes_[i];
    if (++axis.index < axis.size) {
      a_address_ += static_cast<std::uint64_t>(axis.a_stride);
      b_address_ += static_cast<std::uint64_t>(axis.b_stride);
      return;
    }
    axis.index = 0;
    a_address_ -= static_cast<std::uint64_t>(axis.a_stride * (axis.size - 1));
    b_address_ -= static_cast<std::uint64_t>(axis.b_stride * (axis.size - 1));
  }
}

}  // namespace zerohop
