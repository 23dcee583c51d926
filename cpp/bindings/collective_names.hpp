// Names in messages between ranks, zero-padded.
#pragma once

#include <pybind11/pybind11.h>

#include <algorithm>
#include <string>
#include <string_view>

#include "base/wire_text.hpp"
#include "engine/collective/call_log.hpp"

namespace zerohop::bindings::collective {

namespace py = pybind11;

inline engine::collective::DTypeName to_dtype_name(const std::string& name) {
  engine::collective::DTypeName padded{};
  if (name.size() > padded.size()) throw py::value_error("a dtype's name has at most 24 bytes");
  std::ranges::copy(name, padded.begin());
  return padded;
}

// May come from another rank, and is displayed.
inline py::str to_str(const engine::collective::DTypeName& name) {
  const std::string_view text(name.data(), std::ranges::find(name, '\0') - name.begin());
  return wire_text(text, 4 * name.size());
}

}  // namespace zerohop::bindings::collective
