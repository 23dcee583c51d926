// What the files of zh.verbs share: raw rdma objects, held by Python.
#pragma once

#include <pybind11/pybind11.h>
#include <pybind11/typing.h>

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "bindings/owner.hpp"
#include "rdma/memory_region.hpp"
#include "rdma/queue_pair.hpp"

namespace zerohop::bindings {

// A memory region with the Python array whose bytes it registers.
class VerbsRegion {
 public:
  VerbsRegion(std::shared_ptr<rdma::MemoryRegion> region, Owner owner)
      : region_(std::move(region)), owner_(std::move(owner)) {}
  ~VerbsRegion() { close(); }
  VerbsRegion(const VerbsRegion&) = delete;
  VerbsRegion& operator=(const VerbsRegion&) = delete;

  // Deregisters, then releases the array: in this order the adapter never accesses freed memory.
  void close();
  bool closed() const noexcept { return region_ == nullptr; }
  const rdma::MemoryRegion& get() const;  // throws py::value_error when closed

 private:
  std::shared_ptr<rdma::MemoryRegion> region_;
  Owner owner_;
};

// Bytes [offset, offset + nbytes) of a region; always inside it.
struct VerbsSlice {
  std::shared_ptr<VerbsRegion> region;
  std::size_t offset;
  std::size_t nbytes;

  std::uint64_t address() const { return region->get().address() + offset; }
};

// The scatter/gather list of a work request, with the regions it refers to.
class LocalElements {
 public:
  // None, a MemoryRegion, a slice of one, or a sequence of those.
  static LocalElements parse(py::handle local);

  ibv_sge* data() noexcept { return elements_.data(); }
  int size() const noexcept { return static_cast<int>(elements_.size()); }
  std::uint64_t nbytes() const noexcept;

 private:
  void add(const VerbsSlice& slice);
  std::vector<ibv_sge> elements_;
  std::vector<std::shared_ptr<VerbsRegion>> regions_;
};

// One work request for the send queue, checked for completeness when created.
struct SendRequest {
  std::string operation;  // "write", "read", ...
  LocalElements local;
  ibv_send_wr request{};  // sg_list and next are set when it is posted
};

using Facts = py::typing::Dict<py::str, py::object>;
using QueuePairClass = py::class_<rdma::QueuePair, std::shared_ptr<rdma::QueuePair>>;

// Waits without the GIL until `fd` is readable; false when `timeout` seconds have passed. A signal
// runs its Python handler, which may end the wait with an exception.
bool wait_readable(int fd, double timeout);

void bind_verbs_memory(py::module_& m);
void bind_verbs_completion(py::module_& m);
void bind_verbs_srq(py::module_& m);  // ahead of queue pairs, whose constructor names its class
void bind_verbs_queue_pair(py::module_& m);
void bind_verbs_post(py::module_& m, QueuePairClass& queue_pair);

}  // namespace zerohop::bindings
