"""Which cases of the contract run on Soft-RoCE, in one guest and between two, and why the others do not.

An emulated processor is ten times slower than a real one, and `make test` has minutes. Left out is what
never reaches the device, or says nothing there that a case that stays does not say.
ZEROHOP_TEST_VM=full runs everything, but between two guests only what may have its partner elsewhere.
"""

import os
from dataclasses import dataclass
from pathlib import Path

from vm.qemu import REPOSITORY

CONTRACT = Path("tests/contract")
INSIDE = Path("tests/vm/inside")  # tests of programs that need a real RDMA device

# file: why not
FILES_LEFT_OUT = {
    "test_addresses.py": "the format of addresses, and the control channel's secret",
    "test_asyncio.py": "how a loop is woken; a transfer is awaited in test_peer_killed.py",
    "test_attacks.py": "the control channel, sockets and files of the host",
    "test_collectives.py": "made of writes and notifications, which have cases of their own",
    "test_collectives_differ.py": "calls that do not match; what they send each other are small writes",
    "test_collectives_lost.py": "the same; lost ranks are lost peers",
    "test_collectives_mistakes.py": "calls that do not match; what they send each other are small writes",
    "test_collectives_order.py": "threads behind the program",
    "test_collectives_untaken.py": "made of writes and notifications, which have cases of their own",
    "test_examples.py": "programs that start processes; their writes and notifications have cases of their own",
    "test_exhaustion.py": "limits of the process at each call; starts an interpreter per case",
    "test_gil_held.py": "the engine's threads; its partner holds the GIL for minutes",
    "test_hostile_bytes.py": "the control channel and the wire of soft0",
    "test_integrity_collectives.py": "made of transfers, which test_integrity.py damages",
    "test_max_peers.py": "how many the control channel lets in",
    "test_mistakes.py": "arguments refused before anything is posted",
    "test_model.py": "faults of soft0",
    "test_network_cut.py": "network namespaces and soft0; test_two_wires.py cuts the wire between guests",
    "test_p2p.py": "copies on one host, without a device",
    "test_p2p_ends.py": "copies on one host, without a device",
    "test_partners.py": "the tests' own tools",
    "test_rails.py": "several devices of soft0; test_two_wires.py has those of Soft-RoCE",
    "test_scale_model.py": "what soft0 takes",
    "test_scarcity.py": "descriptors and memory of the process; starts an interpreter per case",
    "test_segment.py": "made of write, read, notify and atomics, which have cases of their own",
    "test_segment_lost.py": "the same; lost ranks are lost peers",
    "test_segment_mistakes.py": "arguments refused before anything is posted",
    "test_shapes.py": "how an array becomes a list of elements, in the engine",
    "test_sharing.py": "names, over the control channel",
    "test_signals.py": "waits in which nothing arrives are interrupted",
    "test_timeouts.py": "waits in which nothing arrives",
    "test_torch_backend.py": "PyTorch, several times over",
    "test_torch_backend_groups.py": "PyTorch, several times over",
    "test_torch_backend_mistakes.py": "PyTorch, several times over",
    "test_values.py": "arguments refused before anything is posted",
    "test_ways_to_end.py": "as the control channel finds them out; test_peer_killed.py has the device's part",
    "test_world.py": "how ranks find each other, and a barrier of notifications",
    "test_world_leaving.py": "what ranks say as they leave; lost ranks are lost peers",
    "test_world_runs.py": "how ranks find each other, and their addresses",
    "test_world_shrinking.py": "how survivors find each other; lost ranks are lost peers",
    "test_world_launchers.py": "how ranks find each other; MPI and PyTorch, several times over",
}
# Of the other files. why not: cases; a name stands for all that begin with it.
CASES_LEFT_OUT = {
    "faults on purpose, which soft0 alone has": [
        "test_integrity.py::test_a_bit_that_the_device_does_not_find_is_found",
    ],
    "maps more than the guest has": [
        "test_message_window.py::test_more_than_can_be_mapped_is_told_with_the_knobs",
    ],
    "many processes or interpreters; two are enough to show what the device does": [
        "test_connecting.py::test_those_who_leave_before_they_are_accepted_do_not_pile_up",
        "test_connecting.py::test_sixty_peers_at_once",
        "test_forking.py::test_every_child_ends",
        "test_forking.py::test_programs_started_by_this_one_inherit_no_descriptor",
        "test_placement.py::test_memory_of_one_kind_reaches_memory_of_any_other[rxe0-numpy-torch]",
    ],
    "memory of the engine, in the face of a peer that does not look": [
        "test_load.py::test_memory_of_messages_is_given_back",
    ],
    "costs a process that is killed; the control channel alone finds these out": [
        "test_peer_killed.py::test_kill_9_in_the_middle[rxe0-await",
        "test_peer_killed.py::test_kill_9_in_the_middle[rxe0-lookup",
        "test_peer_killed.py::test_kill_9_while_connecting",
        "test_peer_killed.py::test_kill_9_while_bytes_flow[rxe0-read_many",
        "test_peer_killed.py::test_kill_9_while_bytes_flow[rxe0-write_many",
    ],
    "what a fork leaves to the child, which cases that stay have": [
        "test_forking.py::test_transfers_of_the_parent_end_well_while_children_live",
    ],
    "what a slice is and what Python's threads may do meanwhile": [
        "test_protection.py::test_slices_cannot_leave_the_array",
        "test_threads.py::test_python_runs_on_while_a_thread_waits",
    ],
}
# Between two guests these stay out too. A case whose partner is a thread, or that has none, is left out
# by tests/contract/conftest.py.
FILES_OF_ONE_HOST = {
    "test_errors.py": "what errors are; the partner is a thread of the test",
    "test_forking.py": "what a fork leaves to the child",
    "test_hostile_bytes.py": "finds the partner's ports in /proc",
    "test_p2p.py": "copies on one host",
    "test_p2p_ends.py": "copies on one host",
    "test_partners.py": "finds partners by their process numbers",
    "test_threads.py": "threads of one process; their partner only answers",
    "test_verbs_operations.py": "both queue pairs are the test's own",
}
CASES_OF_ONE_HOST = {
    "counts the partner's references, descriptors or processes from here": [
        "test_connecting.py::test_those_who_leave_before_they_are_accepted_do_not_pile_up",
    ],
    "overruns the emulated wire with answers, and each one lost costs a time-out": [
        "test_messages.py::test_a_storm_in_both_directions_does_not_block[far-rxe0-20000",
    ],
    "takes minutes between two guests, and meets in one all that it is about": [
        "test_load.py::test_a_million_posted_writes",
        "test_load.py::test_shallow_queues_only_cost_time",
    ],
}


@dataclass(frozen=True)
class Selection:
    """files: paths for pytest; options and environment: what narrows them; seconds: at most.

    left_out: why what does not run, a line each.
    """

    files: list[Path]
    options: list[str]
    environment: dict[str, str]
    seconds: float
    left_out: list[str]


# The kernel pins pages whoever allocated them, and importing PyTorch alone takes a minute there.
# The partner is a process; a thread of the test itself only where the case is about threads.
NARROW = {"ZEROHOP_TEST_KINDS": "numpy", "ZEROHOP_TEST_PARTNERS": "process"}


def contract_files() -> list[str]:
    return sorted(path.name for path in (REPOSITORY / CONTRACT).glob("test_*.py"))


def in_one_guest() -> Selection:
    inside = sorted(
        path.relative_to(REPOSITORY) for path in (REPOSITORY / INSIDE).glob("with_*.py")
    )
    if os.environ.get("ZEROHOP_TEST_VM") == "full":
        return Selection(
            [CONTRACT / name for name in contract_files()] + inside, [], {}, 7200.0, []
        )
    return _select(FILES_LEFT_OUT, CASES_LEFT_OUT, NARROW, 1500.0, inside)


def between_two_guests() -> Selection:
    """Without what tests of one guest there are inside: those are about programs, not hosts."""
    far = {"ZEROHOP_TEST_PARTNERS": "far"}
    if os.environ.get("ZEROHOP_TEST_VM") == "full":
        return _select(FILES_OF_ONE_HOST, CASES_OF_ONE_HOST, far, 7200.0)
    files = {**FILES_LEFT_OUT, **FILES_OF_ONE_HOST}
    cases = {**CASES_LEFT_OUT, **CASES_OF_ONE_HOST}
    return _select(files, cases, {**NARROW, **far}, 1200.0)


def _select(
    files: dict[str, str],
    cases: dict[str, list[str]],
    environment: dict[str, str],
    seconds: float,
    inside: list[Path] | None = None,
) -> Selection:
    chosen = [CONTRACT / name for name in contract_files() if name not in files]
    options = [f"--deselect={CONTRACT / case}" for names in cases.values() for case in names]
    left_out = [f"{name}: {why}" for name, why in files.items()]
    left_out += [f"{case}: {why}" for why, names in cases.items() for case in names]
    return Selection(chosen + (inside or []), options, environment, seconds, left_out)
