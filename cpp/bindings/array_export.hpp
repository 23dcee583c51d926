// An array exported to Python: what both DLPack and the buffer protocol need.
#pragma once

#include <string>

#include "base/layout.hpp"
#include "bindings/owner.hpp"

namespace zerohop::bindings {

struct ExportedArray {
  const Layout& layout;
  const std::string& device;  // PyTorch's name for it
  bool writable;
  Owner owner;  // lives as long as the capsule or view
};

}  // namespace zerohop::bindings
