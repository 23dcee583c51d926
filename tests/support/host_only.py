"""The cases that a run with memory of GPUs leaves out (support.arrays), each with the reason."""

import pytest

FORK = "the child has no CUDA"
SCARCE = "CUDA itself needs what the case takes away"
BUFFER = "the case is about the buffer protocol, NumPy, or addresses that the CPU uses"
NO_ARRAY = "the case would be the same again: its memory is of the host in any run"
HOST_ROUTE = "the case demands the route host, which memory of GPUs has not"
QUICK = "the case needs a copy that takes long: 64 MiB take a GPU less than it takes to post them"

HOST_ONLY: dict[str, str] = {
    "test_collectives.py": NO_ARRAY,
    "test_collectives_lost.py": NO_ARRAY,
    "test_collectives_mid_call.py": NO_ARRAY,
    "test_collectives_mistakes.py": NO_ARRAY,
    "test_collectives_order.py": NO_ARRAY,
    "test_examples.py": NO_ARRAY,
    "test_forking.py": FORK,
    "test_model.py": NO_ARRAY,
    "test_programs.py": NO_ARRAY,
    "test_scarcity.py": SCARCE,
    "test_segment.py": NO_ARRAY,
    "test_segment_lost.py": NO_ARRAY,
    "test_segment_mistakes.py": NO_ARRAY,
    "test_world.py": NO_ARRAY,
    "test_world_runs.py": NO_ARRAY,
    "test_world_launchers.py": NO_ARRAY,
    "test_values.py::test_memory_shares_its_bytes_with_numpy_and_torch": BUFFER,
    "test_values.py::test_slicing_describes_what_numpy_describes": BUFFER,
    "test_values.py::test_a_view_describes_what_numpy_describes": BUFFER,
    "test_values.py::test_slices_of_slices": BUFFER,
    "test_lifetime.py::test_a_registered_bytearray_cannot_be_resized": BUFFER,
    "test_lifetime.py::test_made_memory_outlives_its_endpoint_in_every_view": BUFFER,
    "test_p2p.py::test_who_sleeps_is_woken": NO_ARRAY,
    "test_p2p.py::test_notifications_keep_the_order_of_both_ways": HOST_ROUTE,
    "test_p2p.py::test_large_copies_do_not_hold_the_caller_up": QUICK,
    "test_p2p_ends.py::test_a_forked_child_that_drops_memory_does_not_close_it": FORK,
    "test_p2p_ends.py::test_a_lack_of_descriptors_passes": SCARCE,
}


def is_host_only(item: pytest.Item) -> bool:
    name = f"{item.path.name}::{getattr(item, 'originalname', item.name)}"
    return item.path.name in HOST_ONLY or name in HOST_ONLY
