// The topic zh.verbs: raw verbs objects for exploration.
#pragma once

#include <pybind11/pybind11.h>

namespace zerohop::bindings {

void bind_verbs(pybind11::module_& m);

}  // namespace zerohop::bindings
