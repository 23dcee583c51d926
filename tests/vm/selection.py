"""Which cases of the contract run on Soft-RoCE, and why the others do not.

An emulated processor is ten times slower than a real one, and `make test` has minutes. Left out is what
never reaches the device, or says nothing there that a case that stays does not say.
ZEROHOP_TEST_VM=full runs everything.
"""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path

from vm.qemu import REPOSITORY

CONTRACT = Path("tests/contract")
INSIDE = Path("tests/vm/inside")  # tests of programs that need a real RDMA device

FILES_LEFT_OUT = {
    "test_addresses.py",  # the format of addresses, and the control channel's secret
    "test_asyncio.py",  # how a loop is woken; a transfer is awaited in test_peer_killed.py
    "test_dtypes.py",  # what an array is; bytes are bytes to a device
    "test_hostile_bytes.py",  # the control channel and the wire of soft0
    "test_mistakes.py",  # arguments refused before anything is posted
    "test_p2p.py",  # copies without a device, as the next
    "test_p2p_ends.py",
    "test_partners.py",  # the tests' own tools
    "test_rails.py",  # several devices of soft0; test_two_wires.py has those of Soft-RoCE
    "test_scarcity.py",  # descriptors and memory of the process; starts an interpreter per case
    "test_shapes.py",  # how an array becomes a list of elements, in the engine
    "test_sharing.py",  # names, over the control channel
    "test_signals.py",  # waits in which nothing arrives are interrupted
    "test_timeouts.py",  # waits in which nothing arrives
    "test_values.py",  # arguments refused before anything is posted
}
# Of the other files. A name stands for all cases that begin with it.
CASES_LEFT_OUT = [
    # Many processes or interpreters; two are enough to show what the device does.
    "test_connecting.py::test_those_who_leave_before_they_are_accepted_do_not_pile_up",
    "test_connecting.py::test_sixty_peers_at_once",
    "test_forking.py::test_multiprocessing_with_its_fork_method",
    "test_forking.py::test_programs_started_by_this_one_inherit_no_descriptor",
    "test_forking.py::test_the_array_bytes_stay_readable_in_the_child",
    "test_placement.py::test_memory_of_one_kind_reaches_memory_of_any_other[rxe0-numpy-torch]",
    # Memory of the engine, in the face of a peer that does not look.
    "test_load.py::test_memory_of_messages_is_given_back",
    "test_load.py::test_senseless_depths_are_refused",
    # Each costs a process that is killed; the control channel alone finds these out.
    "test_peer_killed.py::test_kill_9_in_the_middle[rxe0-await",
    "test_peer_killed.py::test_kill_9_in_the_middle[rxe0-compare_swap",
    "test_peer_killed.py::test_kill_9_in_the_middle[rxe0-lookup",
    "test_peer_killed.py::test_kill_9_in_the_middle[rxe0-notify",
    "test_peer_killed.py::test_kill_9_in_the_middle[rxe0-wait_notify_any",
    "test_peer_killed.py::test_kill_9_in_the_middle[rxe0-write and notify",
    "test_peer_killed.py::test_kill_9_while_connecting",
    "test_peer_killed.py::test_kill_9_while_bytes_flow[rxe0-read_many",
    "test_peer_killed.py::test_kill_9_while_bytes_flow[rxe0-write_many",
    "test_peer_killed.py::test_an_idle_peer_that_hangs_is_lost",
    "test_peer_killed.py::test_a_peer_busy_in_python_is_served_and_not_lost",
    # What a slice is and what Python's threads may do meanwhile.
    "test_protection.py::test_slices_cannot_leave_the_array",
    "test_threads.py::test_python_runs_on_while_a_thread_waits",
]


@dataclass(frozen=True)
class Selection:
    """files: paths for pytest; options and environment: what narrows them; seconds: at most."""

    files: list[Path]
    options: list[str]
    environment: dict[str, str]
    seconds: float


def contract_files() -> list[str]:
    return sorted(path.name for path in (REPOSITORY / CONTRACT).glob("test_*.py"))


def selection() -> Selection:
    inside = sorted(
        path.relative_to(REPOSITORY) for path in (REPOSITORY / INSIDE).glob("with_*.py")
    )
    everything = contract_files()
    if os.environ.get("ZEROHOP_TEST_VM") == "full":
        return Selection([CONTRACT / name for name in everything] + inside, [], {}, 7200.0)
    chosen = [CONTRACT / name for name in everything if name not in FILES_LEFT_OUT]
    options = [f"--deselect={CONTRACT / case}" for case in CASES_LEFT_OUT]
    # The kernel pins pages whoever allocated them, and importing PyTorch alone takes a minute there.
    # The partner is a process; a thread of the test itself only where the case is about threads.
    environment = {"ZEROHOP_TEST_KINDS": "numpy", "ZEROHOP_TEST_PARTNERS": "process"}
    return Selection(chosen + inside, options, environment, 1500.0)
