// zh.verbs: memory regions and slices of them.
#include <limits>

#include "bindings/demands.hpp"
#include "bindings/gil.hpp"
#include "bindings/verbs_objects.hpp"
#include "rdma/verbs_text.hpp"

namespace zerohop::bindings {

void VerbsRegion::close() {
  if (region_ == nullptr) return;
  {
    const GilReleased released;  // waits until the device no longer uses the pages
    region_.reset();
  }
  owner_.reset();
}

const rdma::MemoryRegion& VerbsRegion::get() const {
  if (region_ == nullptr) throw py::value_error("this memory region is closed");
  return *region_;
}

namespace {

[[noreturn]] void refuse_local(py::handle local) {
  throw py::type_error("local must be a MemoryRegion, a slice of one, or a list of those, not " +
                       type_name(local) + ": register an array with ProtectionDomain.register");
}

}  // namespace

LocalElements LocalElements::parse(py::handle local) {
  LocalElements list;
  if (local.is_none()) return list;
  const auto add_one = [&list](py::handle item) {
    if (py::isinstance<VerbsRegion>(item)) {
      auto region = item.cast<std::shared_ptr<VerbsRegion>>();
      const std::size_t nbytes = region->get().nbytes();
      list.add({std::move(region), 0, nbytes});
    } else if (py::isinstance<VerbsSlice>(item)) {
      list.add(item.cast<VerbsSlice>());
    } else {
      refuse_local(item);
    }
  };
  if (py::isinstance<VerbsRegion>(local) || py::isinstance<VerbsSlice>(local)) {
    add_one(local);
  } else {
    if (!PyList_Check(local.ptr()) && !PyTuple_Check(local.ptr())) refuse_local(local);
    for (py::handle item : local) add_one(item);
  }
  return list;
}

void LocalElements::add(const VerbsSlice& slice) {
  constexpr auto kMost = std::numeric_limits<std::uint32_t>::max();  // ibv_sge::length is 32 bits
  if (slice.nbytes > kMost) {
    throw py::value_error("one element carries at most " + std::to_string(kMost) +
                          " bytes: split the request");
  }
  elements_.push_back({.addr = slice.address(),
                       .length = static_cast<std::uint32_t>(slice.nbytes),
                       .lkey = slice.region->get().lkey()});
  regions_.push_back(slice.region);
}

std::uint64_t LocalElements::nbytes() const noexcept {
  std::uint64_t sum = 0;
  for (const ibv_sge& element : elements_) sum += element.length;
  return sum;
}

namespace {

// A slice that reaches beyond the region is refused, not clamped: otherwise fewer bytes would move
// than requested.
VerbsSlice slice_of(const std::shared_ptr<VerbsRegion>& region, Shown<py::slice> shown) {
  const py::handle key = shown.object;
  if (!PySlice_Check(key.ptr())) {
    throw py::type_error("a memory region is sliced in bytes, region[begin:end], not with " +
                         a_type_name(key));
  }
  py::ssize_t start = 0;
  py::ssize_t stop = 0;
  py::ssize_t step = 0;
  if (PySlice_Unpack(key.ptr(), &start, &stop, &step) != 0) throw py::error_already_set();
  if (step != 1) throw py::value_error("a memory region is sliced in bytes with step 1");
  const auto nbytes = static_cast<py::ssize_t>(region->get().nbytes());
  const auto inside = [nbytes](py::ssize_t at) { return at >= -nbytes && at <= nbytes; };
  if (!inside(start) || (!inside(stop) && stop != PY_SSIZE_T_MAX)) {  // the latter: no end given
    throw py::index_error("slice " + py::str(key).cast<std::string>() +
                          " reaches beyond the region of " + std::to_string(nbytes) + " bytes");
  }
  const py::ssize_t length = PySlice_AdjustIndices(nbytes, &start, &stop, step);
  return {region, static_cast<std::size_t>(start), static_cast<std::size_t>(length)};
}

std::string describe_region(const VerbsRegion& region) {
  if (region.closed()) return "<MemoryRegion, closed>";
  const rdma::MemoryRegion& mr = region.get();
  return "<MemoryRegion " + std::to_string(mr.nbytes()) + " bytes at " + rdma::hex(mr.address()) +
         ", lkey " + rdma::hex(mr.lkey()) + ", rkey " + rdma::hex(mr.rkey()) + ", access " +
         rdma::hex(static_cast<unsigned>(mr.access())) + ">";
}

// A property of the open region.
template <auto member>
auto property() {
  return [](const VerbsRegion& region) { return (region.get().*member)(); };
}

}  // namespace

void bind_verbs_memory(py::module_& m) {
  // Both classes before any method: signatures name the other class.
  py::class_<VerbsRegion, std::shared_ptr<VerbsRegion>> region(m, "MemoryRegion", R"(
Registered bytes, made by ProtectionDomain.register (man ibv_reg_mr). Keeps its array alive.

region[a:b] is a MemorySlice of bytes a to b.)");
  py::class_<VerbsSlice> slice(m, "MemorySlice",
                               "Bytes [offset, offset + nbytes) of a MemoryRegion.");
  region.def_property_readonly("address", property<&rdma::MemoryRegion::address>())
      .def_property_readonly("nbytes", property<&rdma::MemoryRegion::nbytes>())
      .def_property_readonly("lkey", property<&rdma::MemoryRegion::lkey>())
      .def_property_readonly("rkey", property<&rdma::MemoryRegion::rkey>())
      .def_property_readonly("access", property<&rdma::MemoryRegion::access>(),
                             "The Access flags it was registered with, as an int.")
      .def_property_readonly(
          "remote",
          [](const VerbsRegion& r) { return py::make_tuple(r.get().address(), r.get().rkey()); },
          "(address, rkey): what a peer needs to reach the first byte.")
      .def_property_readonly("closed", &VerbsRegion::closed)
      .def("close", &VerbsRegion::close, R"(
Deregister now: its keys are no longer valid, and work requests that still use it fail.)")
      .def("__getitem__", slice_of, py::arg("bytes"),
           "Bytes begin to end. IndexError beyond the region.")
      .def("__len__", [](const VerbsRegion& r) { return r.get().nbytes(); })
      .def("__repr__", describe_region);

  slice.def_readonly("region", &VerbsSlice::region)
      .def_readonly("offset", &VerbsSlice::offset)
      .def_readonly("nbytes", &VerbsSlice::nbytes)
      .def_property_readonly("address", &VerbsSlice::address)
      .def_property_readonly(
          "remote",
          [](const VerbsSlice& s) { return py::make_tuple(s.address(), s.region->get().rkey()); },
          "(address, rkey): what a peer needs to reach the first byte.")
      .def("__repr__", [](const VerbsSlice& s) {
        return "<MemorySlice [" + std::to_string(s.offset) + ":" +
               std::to_string(s.offset + s.nbytes) + "] of " + describe_region(*s.region) + ">";
      });
}

}  // namespace zerohop::bindings
