// A contiguous host array, for the duration of one collective call. A plain NumPy array costs a few
// field reads, one that lends a buffer no allocation.
#pragma once

#include <pybind11/pybind11.h>

#include <cstddef>
#include <cstdint>

#include "base/dtype.hpp"
#include "base/layout.hpp"
#include "bindings/owner.hpp"
#include "engine/core/endpoint.hpp"

namespace zerohop::bindings {

// The GIL must be held in every call. Not movable: a view may point into itself
// (PyBuffer_FillInfo).
class HostArray {
 public:
  HostArray() = default;
  ~HostArray() { release(); }
  HostArray(const HostArray&) = delete;
  HostArray& operator=(const HostArray&) = delete;

  // False: something about it is unusual or wrong; it then holds nothing.
  bool take(const engine::Endpoint& endpoint, py::handle array);
  void release() noexcept;

  std::byte* begin() const noexcept { return begin_; }
  std::byte* end() const noexcept { return begin_ + nbytes_; }
  std::uint64_t nbytes() const noexcept { return nbytes_; }
  std::int64_t rows() const noexcept { return rows_; }  // -1: no axis
  bool writable() const noexcept { return writable_; }
  const DType& dtype() const noexcept { return dtype_; }

 private:
  bool take_memory(const engine::Endpoint& endpoint, const engine::Memory& memory);
  bool take_numpy(py::handle array);
  bool take_buffer(py::handle array);
  bool take_any(py::handle array);
  bool is(const Layout& layout, bool writable, Owner owner);

  py::object numpy_;  // or:
  Py_buffer view_{};  // or:
  Owner owner_;
  std::byte* begin_ = nullptr;
  std::uint64_t nbytes_ = 0;
  std::int64_t rows_ = -1;
  bool writable_ = false;
  DType dtype_;
};

}  // namespace zerohop::bindings
