// What the driver reports about GPUs and their memory, for the doctor and for exploration.
#include <pybind11/pybind11.h>

#include <memory>
#include <string>

#include "base/error.hpp"
#include "bindings/array_import.hpp"
#include "bindings/topics.hpp"
#include "driver/cuda_call.hpp"
#include "gpu/allocation.hpp"
#include "gpu/dmabuf.hpp"
#include "gpu/kernel_image.hpp"
#include "gpu/peermem.hpp"
#include "gpu/write_order.hpp"

namespace zerohop::bindings {
namespace {

using namespace py::literals;

std::shared_ptr<const driver::Cuda> cuda() {
  const driver::CudaLibrary& library = driver::libcuda();
  if (!library.cuda) throw CudaError(library.reason);
  driver::check_cuda(*library.cuda, library.cuda->init(0), "cuInit");
  return library.cuda;
}

const char* order_name(gpu::WriteOrder order) {
  switch (order) {
    case gpu::WriteOrder::kept: return "kept";
    case gpu::WriteOrder::flush: return "flush";
    case gpu::WriteOrder::read: break;
  }
  return "read";
}

py::dict gpu_facts(int ordinal) {
  const auto table = cuda();
  driver::CudaDevice device = 0;
  driver::check_cuda(*table, table->device_get(&device, ordinal),
                     "cuDeviceGet of cuda:" + std::to_string(ordinal));
  const gpu::DeviceFacts facts = gpu::ask_device(*table, device, ordinal);  // creates no context
  return py::dict("device"_a = facts.device_name(), "name"_a = facts.name, "pci"_a = facts.pci,
                  "compute"_a = facts.compute, "driver"_a = facts.driver,
                  "gpudirect"_a = facts.gpudirect, "gpudirect_vmm"_a = facts.gpudirect_vmm,
                  "dmabuf"_a = facts.dmabuf, "flush_by_host"_a = facts.flush_by_host,
                  "flush_by_stream"_a = facts.flush_by_stream,
                  "writes_ordering"_a = facts.writes_ordering,
                  "write_order"_a = order_name(gpu::write_order(facts, false)),
                  "bar1_nbytes"_a = facts.bar1_nbytes ? py::object(py::int_(*facts.bar1_nbytes))
                                                      : py::object(py::none()),
                  "peermem"_a = gpu::find_peermem());
}

int gpu_count() {
  const driver::CudaLibrary& library = driver::libcuda();
  if (!library.cuda) return 0;
  int count = 0;
  return library.cuda->init(0) == driver::kCudaSuccess &&
                 library.cuda->device_get_count(&count) == driver::kCudaSuccess
             ? count
             : 0;
}

py::dict gpu_memory(py::handle array) {
  const ImportedArray imported = import_array(array);
  const auto table = cuda();
  const gpu::Allocation found = gpu::find_allocation(*table, imported.layout.address);
  py::list chunks;
  if (found.kind != gpu::MemoryKind::unknown) {
    for (const auto& chunk : gpu::find_chunks(*table, imported.layout.extent())) {
      chunks.append(py::make_tuple(chunk.extent.begin, chunk.extent.end, chunk.buffer_id));
    }
  }
  return py::dict("kind"_a = gpu::kind_name(found.kind), "ordinal"_a = found.ordinal,
                  "begin"_a = found.extent.begin, "end"_a = found.extent.end,
                  "buffer_id"_a = found.buffer_id, "chunks"_a = chunks,
                  "gpudirect_capable"_a = found.gpudirect_capable,
                  "legacy_ipc_capable"_a = found.legacy_ipc_capable,
                  "handle_types"_a = found.handle_types, "sync_memops"_a = found.sync_memops);
}

py::tuple gpu_export_dmabuf(py::handle array) {
  const ImportedArray imported = import_array(array);
  const auto table = cuda();
  const gpu::Allocation found = gpu::find_allocation(*table, imported.layout.address);
  const auto device = gpu::Device::open(table, found.ordinal);
  gpu::Dmabuf dmabuf = gpu::export_dmabuf(*device, imported.layout.extent());
  return py::make_tuple(dmabuf.fd.release(), dmabuf.offset);
}

}  // namespace

void bind_gpu(py::module_& m) {
  m.def(
      "has_kernels", [] { return !gpu::kernel_image().empty(); },
      "Whether this package was built with its kernels (nvcc was available).");
  m.def("gpu_count", &gpu_count, "How many GPUs the driver reports; 0 without a driver.");
  m.def("gpu_facts", &gpu_facts, py::arg("ordinal"), R"(
The driver's facts about ``cuda:<ordinal>`` that concern adapters. write_order: what makes their writes visible
to a running kernel: nothing (``kept``), a ``flush`` or a ``read`` by the adapter. Raises CudaError.)");
  m.def("gpu_memory", &gpu_memory, py::arg("array"), R"(
The kind of an array's memory and the allocation around it: addresses, and chunks as tuples of begin, end and
buffer id, which the process never reuses for other memory. Raises CudaError, RegistrationError.)");
  m.def("gpu_export_dmabuf", &gpu_export_dmabuf, py::arg("array"), R"(
Exports the pages of an array as a dma-buf: a file descriptor, which the caller closes, and the offset of the
first element in it. Raises CudaError.)");
}

}  // namespace zerohop::bindings
