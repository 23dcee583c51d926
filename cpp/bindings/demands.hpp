// Arguments that users get wrong: accepted as any object and checked by hand. pybind11's own error
// message prints every argument, including whole arrays and the secrets in addresses.
#pragma once

#include <pybind11/pybind11.h>
#include <pybind11/stl.h>

#include <cstdint>
#include <optional>
#include <string>

#include "engine/memory/memory.hpp"
#include "engine/peer/peer.hpp"

namespace zerohop::bindings {

namespace py = pybind11;

// Any object whatsoever; signatures show T.
template <typename T>
struct Shown {
  py::handle object;
};

// Seconds; None: the Endpoint's default. Rejects anything else when the call is dispatched.
struct Timeout {
  std::optional<double> seconds;
};

// The class name alone, without its module, preceded by "a " or "an ".
std::string type_name(py::handle object);
std::string a_type_name(py::handle object);

// --- each throws py::type_error, py::value_error or py::index_error that names `what` ---
std::optional<double> demand_timeout(py::handle object);
std::string demand_str(py::handle object, const char* what);
// A str, or a torch.device, which prints as one: "cpu", "cuda:0".
std::string demand_device(py::handle object);
std::string demand_route(py::handle object);  // None: any, ""
const engine::Memory& demand_memory(py::handle object, const char* what);
// `local` is the other array of the same call, for messages.
const engine::RemoteMemory& demand_remote(py::handle object, const char* what,
                                          py::handle local = {});
std::uint32_t demand_u32(py::handle object, const char* what,
                         const char* range = "from 0 to 2**32 - 1");
// The engine rejects a value of 0.
engine::Notification demand_notification(py::handle slot, py::handle value);
// A stream of torch, CuPy, Numba or cuda-bindings, or a handle as an integer; None: none.
std::optional<driver::CudaStream> demand_stream(py::handle object);
std::uint32_t demand_slot(py::handle object);
// 64 bits, signed or unsigned: atomics do not care, the element type defines how to read them.
std::uint64_t demand_word(py::handle object, const char* what);
// bytes, bytearray or memoryview. The message reveals nothing of the object.
py::bytes demand_bytes(py::handle object, const char* what);

// Null if it is something else.
const engine::RemoteMemory* find_remote(py::handle object);

}  // namespace zerohop::bindings

namespace pybind11::detail {

template <typename T>
struct type_caster<zerohop::bindings::Shown<T>> {
  PYBIND11_TYPE_CASTER(zerohop::bindings::Shown<T>, make_caster<T>::name);
  bool load(handle source, bool) noexcept {
    value.object = source;
    return true;
  }
};

template <>
struct type_caster<zerohop::bindings::Timeout> {
  PYBIND11_TYPE_CASTER(zerohop::bindings::Timeout, make_caster<std::optional<double>>::name);
  bool load(handle source, bool) {
    value.seconds = zerohop::bindings::demand_timeout(source);
    return true;
  }
};

}  // namespace pybind11::detail
