#include "bindings/dropped.hpp"

#include <string>

#include "base/log.hpp"

namespace zerohop::bindings {

Dropped dropped_of(const std::vector<std::shared_ptr<engine::Peer>>& peers) {
  Dropped sum;
  for (const auto& peer : peers) {
    sum.transfers += peer->unfinished();
    for (const auto& rail : peer->rails().reports()) {
      if (rail.stats != nullptr) sum.sends += rail.stats->sends_dropped.load();
    }
  }
  return sum;
}

void tell_of_dropped(const Dropped& dropped) {
  if (dropped.transfers > 0) {
    log(Level::warning, "transfer", [&] {
      return "close() gave up " + std::to_string(dropped.transfers) +
             (dropped.transfers == 1 ? " transfer" : " transfers") +
             " that had not ended by its timeout, and data may be missing: wait for transfers "
             "before closing, or pass a longer timeout";
    });
  }
  if (dropped.sends == 0) return;
  const std::string sentence =
      "close() dropped " + std::to_string(dropped.sends) +
      " send() that no recv() of the peer had taken: wait for its Transfer before closing";
  // Raises where warnings are errors; the object is closed nevertheless.
  if (PyErr_WarnEx(PyExc_RuntimeWarning, sentence.c_str(), 1) != 0) throw py::error_already_set();
}

}  // namespace zerohop::bindings
