// Devices, protection domains and async events.
#include "bindings/bind_verbs.hpp"

#include <pybind11/stl.h>

#include <cstring>
#include <optional>

#include "base/deadline.hpp"
#include "base/error.hpp"
#include "bindings/array_import.hpp"
#include "bindings/gil.hpp"
#include "bindings/torch_storage.hpp"
#include "bindings/verbs_objects.hpp"
#include "engine/core/device_choice.hpp"
#include "rdma/verbs_text.hpp"

namespace zerohop::bindings {
namespace {

using rdma::AsyncEvent;
using rdma::Device;
using rdma::ProtectionDomain;
using DeviceClass = py::class_<Device, std::shared_ptr<Device>>;
using DomainClass = py::class_<ProtectionDomain, std::shared_ptr<ProtectionDomain>>;

// Access that a read-only array allows: being read, with any of the optional hints.
constexpr int kReadOnly = int{IBV_ACCESS_REMOTE_READ} | int{IBV_ACCESS_OPTIONAL_RANGE};

// All access rights that the device knows.
int full_access(const Device& device) {
  const int atomics = device.has_atomics() ? int{IBV_ACCESS_REMOTE_ATOMIC} : 0;
  return IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ | atomics;
}

std::shared_ptr<Device> open_device(const std::string& name, std::uint8_t port, int gid_index) {
  return engine::open_device(name, {.port = port, .gid_index = gid_index});
}

Facts device_attributes(const Device& device) {
  const ibv_device_attr& a = device.attributes();
  Facts facts;
  facts["fw_ver"] = std::string(a.fw_ver, ::strnlen(a.fw_ver, sizeof a.fw_ver));
  facts["vendor_id"] = a.vendor_id;
  facts["vendor_part_id"] = a.vendor_part_id;
  facts["hw_ver"] = a.hw_ver;
  facts["phys_port_cnt"] = a.phys_port_cnt;
  facts["max_mr_size"] = a.max_mr_size;
  facts["max_qp"] = a.max_qp;
  facts["max_qp_wr"] = a.max_qp_wr;
  facts["max_sge"] = a.max_sge;
  facts["max_sge_rd"] = a.max_sge_rd;
  facts["max_cq"] = a.max_cq;
  facts["max_cqe"] = a.max_cqe;
  facts["max_mr"] = a.max_mr;
  facts["max_pd"] = a.max_pd;
  facts["max_qp_rd_atom"] = a.max_qp_rd_atom;
  facts["max_qp_init_rd_atom"] = a.max_qp_init_rd_atom;
  facts["atomic_cap"] = rdma::atomic_cap_name(a.atomic_cap);
  return facts;
}

Facts port_attributes(const Device& device) {
  const ibv_port_attr port = device.port_attributes();
  Facts facts;
  facts["state"] = rdma::port_state_name(port.state);
  facts["max_mtu"] = rdma::mtu_bytes(port.max_mtu);
  facts["active_mtu"] = rdma::mtu_bytes(port.active_mtu);
  facts["gid_tbl_len"] = port.gid_tbl_len;
  facts["max_msg_sz"] = port.max_msg_sz;
  facts["lid"] = port.lid;
  facts["link_layer"] = rdma::link_layer_name(port.link_layer);
  return facts;
}

std::optional<AsyncEvent> async_event(Device& device, double timeout) {
  const Deadline deadline = Deadline::after(Deadline::Seconds{timeout});
  for (;;) {
    if (auto event = device.next_async_event()) return event;
    // Another thread may take the event that ended this wait: then wait for the remaining time.
    const double left = timeout > 0 ? deadline.remaining_ms() / 1000.0 : timeout;
    if (!wait_readable(device.async_fd(), left)) return std::nullopt;
  }
}

// Registers [lowest, one past the highest) byte that the array touches.
std::shared_ptr<VerbsRegion> register_region(const std::shared_ptr<ProtectionDomain>& domain,
                                             py::object array, std::optional<int> access) {
  hold_storage(array);
  ImportedArray imported = import_array(array);
  if (imported.device != "cpu") {
    throw py::value_error("only host memory can be registered here, not " + imported.device);
  }
  const int wanted = access.value_or(imported.writable ? full_access(domain->device())
                                                       : int{IBV_ACCESS_REMOTE_READ});
  if (!imported.writable && (wanted & ~kReadOnly) != 0) {
    throw py::buffer_error(std::string("the array is read-only: ") + imported.why_read_only +
                           "; register it with access=Access.REMOTE_READ");
  }
  const Extent extent = imported.layout.extent();
  std::shared_ptr<rdma::MemoryRegion> region;
  {
    const GilReleased released;  // pins every page
    region = rdma::MemoryRegion::create(domain, reinterpret_cast<void*>(extent.begin),
                                        extent.end - extent.begin, wanted);
  }
  return std::make_shared<VerbsRegion>(std::move(region), std::move(imported.owner));
}

void bind_verbs_device(py::module_& m, DeviceClass& device) {
  m.def("verbs_devices", engine::device_names,
        "Names of the RDMA devices that libibverbs lists, then those of the software HCA.");
  device
      .def(py::init(&open_device), py::arg("name"), py::kw_only(), py::arg("port") = 0,
           py::arg("gid_index") = -1)
      .def_property_readonly("name", &Device::name)
      .def_property_readonly("port", &Device::port)
      .def_property_readonly("gid_index", [](const Device& d) { return d.gid().index; })
      .def_property_readonly(
          "gid_kind", [](const Device& d) { return rdma::gid_kind_name(d.gid().kind); },
          "\"RoCE v2\", \"RoCE v1\", \"InfiniBand\" or \"unknown kind\".")
      .def_property_readonly(
          "provider", [](const Device& d) { return d.verbs().provider; },
          "The implementation of the verbs table: \"libibverbs\" or \"softhca\".")
      .def_property_readonly(
          "gid", [](const Device& d) { return rdma::gid_text(d.gid().value); },
          "The address of the port, written as an IPv6 address.")
      .def_property_readonly(
          "state", [](const Device& d) { return rdma::port_state_name(d.port_attributes().state); },
          "The state of the port now: \"ACTIVE\", \"DOWN\", ...")
      .def_property_readonly(
          "mtu", [](const Device& d) { return rdma::mtu_bytes(d.port_attributes().active_mtu); },
          "The active MTU of the port in bytes.")
      .def_property_readonly("attributes", device_attributes,
                             "Limits of the device (man ibv_query_device); sizes in bytes.")
      .def_property_readonly("port_attributes", port_attributes,
                             "State of the port, queried now (man ibv_query_port); sizes in bytes.")
      .def("pd", &ProtectionDomain::create, "A new protection domain on this device.")
      .def("async_event", async_event, py::arg("timeout") = 0.0, R"(
The next asynchronous event, or None when none comes within timeout seconds (man
ibv_get_async_event).)")
      .def("__repr__", [](const Device& d) {
        return "<Device " + d.name() + " (" + d.verbs().provider + ") port " +
               std::to_string(d.port()) + " " + rdma::port_state_name(d.port_attributes().state) +
               ", gid " + rdma::gid_text(d.gid().value) + ">";
      });
}

void bind_async_event(py::module_& m) {
  py::class_<AsyncEvent>(m, "AsyncEvent", "An asynchronous event of a device, port or queue.")
      .def_property_readonly(
          "type", [](const AsyncEvent& e) { return rdma::event_name(e.type); },
          "\"QP_FATAL\", \"PORT_ERR\", ...: ibv_event_type without its prefix.")
      .def_property_readonly(
          "help", [](const AsyncEvent& e) { return rdma::event_help(e.type); },
          "What it means and what to do.")
      .def_readonly("qp_num", &AsyncEvent::qp_number, "0 unless the event names a queue pair.")
      .def_readonly("port", &AsyncEvent::port, "0 unless the event names a port.")
      .def("__repr__", [](const AsyncEvent& e) {
        std::string text = std::string("<AsyncEvent ") + rdma::event_name(e.type);
        if (e.qp_number != 0) text += " qp_num=" + rdma::hex(e.qp_number);
        if (e.port != 0) text += " port=" + std::to_string(e.port);
        return text + ">";
      });
}

void bind_protection_domain(DomainClass& domain) {
  domain.def(py::init(&ProtectionDomain::create), py::arg("device"))
      .def_property_readonly("device", &ProtectionDomain::device_ptr)
      .def("register", register_region, py::arg("array"), py::kw_only(),
           py::arg("access") = py::none(), R"(
Register the bytes of an array, or of anything with the buffer protocol, without a copy.

access: Access flags; by default everything for a writable array, REMOTE_READ for a read-only one.
The region keeps the array alive. Raises RegistrationError when the memory cannot be pinned,
BufferError for write access to a read-only array (man ibv_reg_mr).)")
      .def("__repr__", [](const ProtectionDomain& d) {
        return "<ProtectionDomain of " + d.device().name() + ">";
      });
}

}  // namespace

void bind_verbs(py::module_& m) {
  bind_async_event(m);
  bind_verbs_memory(m);
  // Both classes before any method: signatures name the other class.
  DeviceClass device(m, "Device", R"(
An open verbs device and one of its ports (man ibv_open_device).

name: "mlx5_0", "rxe0", "soft0", "soft0@eth0", "soft0@10.0.0.5". Raises VerbsError for other names.
port: from 1; 0 (default) chooses the first that is active and has a GID. gid_index: to 255; -1 (default)
chooses the GID that reaches farthest, RoCE v2 on Ethernet.)");
  DomainClass domain(m, "ProtectionDomain", R"(
Queue pairs and memory regions work together only inside one domain (man ibv_alloc_pd).)");
  bind_verbs_device(m, device);
  bind_protection_domain(domain);
  bind_verbs_completion(m);
  bind_verbs_srq(m);
  bind_verbs_queue_pair(m);
}

}  // namespace zerohop::bindings
