// What tests call by ctypes: ctypes.CDLL(None).mlx5sim_refuse(3, errno.ENOMEM).
#include "files.hpp"
#include "refusals.hpp"

#define EXPORTED extern "C" __attribute__((visibility("default")))

namespace sim = zerohop::mlx5sim;

EXPORTED void mlx5sim_refuse(int nth, int error) { sim::refusals::plan(nth, error); }
EXPORTED int mlx5sim_refused() { return sim::refusals::refused(); }

// Of all devices that this process has open. How many there were.
EXPORTED int mlx5sim_break_queue_pairs() {
  int broken = 0;
  for (const auto& device : sim::files::devices()) broken += device->break_queue_pairs();
  return broken;
}
