// The Python class Endpoint, bound in parts.
#pragma once

#include "bindings/handles.hpp"

namespace zerohop::bindings {

using EndpointClass = py::class_<engine::Endpoint, EndpointHandle>;

void bind_registered_memory(EndpointClass& type);  // register, empty, share
void bind_grants(EndpointClass& type);
void bind_notifications(EndpointClass& type);
void bind_endpoint_stats(EndpointClass& type);
void bind_faults(py::module_& m, EndpointClass& type);

}  // namespace zerohop::bindings
