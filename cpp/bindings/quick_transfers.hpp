#pragma once

#include <pybind11/pybind11.h>

namespace zerohop::bindings {

// From now on Peer.write() and Peer.read() take arguments as they mostly are by a shorter way; for
// others, and whatever is wrong with them, everything stays as it is. Behind explain_refusals().
void quicken_transfers(pybind11::module_& m);

}  // namespace zerohop::bindings
