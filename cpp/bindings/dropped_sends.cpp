#include "bindings/dropped_sends.hpp"

#include <string>

namespace zerohop::bindings {

std::uint64_t dropped_sends(const std::vector<std::shared_ptr<engine::Peer>>& peers) {
  std::uint64_t count = 0;
  for (const auto& peer : peers) {
    for (const auto& rail : peer->rails()) {
      if (rail.stats != nullptr) count += rail.stats->sends_dropped.load();
    }
  }
  return count;
}

void warn_of_dropped_sends(std::uint64_t count) {
  const std::string sentence =
      "close() dropped " + std::to_string(count) +
      " send() that no recv() of the peer had taken: wait for its Transfer before closing";
  // Raises where warnings are errors; closed it is nevertheless.
  if (PyErr_WarnEx(PyExc_RuntimeWarning, sentence.c_str(), 1) != 0) throw py::error_already_set();
}

}  // namespace zerohop::bindings
