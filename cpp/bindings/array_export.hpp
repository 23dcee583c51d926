// An array that leaves for Python: what both DLPack and the buffer protocol need to know of it.
#pragma once

#include <string>

#include "base/layout.hpp"
#include "bindings/owner.hpp"

namespace zerohop::bindings {

struct ExportedArray {
  const Layout& layout;
  const std::string& device;  // as PyTorch names it
  bool writable;
  Owner owner;  // lives as long as the capsule or view does
};

}  // namespace zerohop::bindings
