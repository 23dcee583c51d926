"""Which cases of the contract run on Soft-RoCE and Soft iWARP, in one guest and between two, and why the others do not.

An emulated processor is ten times slower than a real one, and `make test` has minutes. Left out is what
never reaches the device, or says nothing there that a case that stays does not say.
ZEROHOP_TEST_VM=full runs everything, but between two guests only what may have its partner elsewhere.
"""

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import pytest

from vm.qemu import REPOSITORY

DEVICES = ("rxe0", "siw0")
CONTRACT = Path("tests/contract")
INSIDE = Path("tests/vm/inside")  # tests of programs that need a real RDMA device

# why not: files, and cases; the name of a case stands for all that begin with it.
LEFT_OUT = {
    "the control channel, and sockets and files of the host": [
        "test_addresses.py", "test_attacks.py", "test_hostile_bytes.py", "test_max_peers.py",
        "test_sharing.py",
    ],
    "how a loop is woken; a transfer is awaited in test_peer_killed.py": ["test_asyncio.py"],
    "made of operations that have cases of their own": [
        "test_collectives.py", "test_collectives_untaken.py", "test_examples.py",
        "test_hosts.py", "test_integrity_collectives.py", "test_programs.py", "test_segment.py",
    ],
    "calls that do not match; what they send each other are small writes": [
        "test_collectives_differ.py", "test_collectives_mistakes.py",
    ],
    "lost ranks are lost peers": [
        "test_collectives_lost.py", "test_collectives_mid_call.py", "test_segment_lost.py",
        "test_world_leaving.py", "test_world_shrinking.py", "test_world_split_ends.py",
    ],
    "threads behind the program": ["test_collectives_order.py"],
    "limits of the process; starts an interpreter per case": [
        "test_exhaustion.py", "test_scarcity.py",
    ],
    "the engine's threads; its partner holds the GIL for minutes": ["test_gil_held.py"],
    "arguments refused before anything is posted": [
        "test_mistakes.py", "test_segment_mistakes.py", "test_values.py",
    ],
    "soft0 and its faults": ["test_model.py", "test_scale_model.py"],
    "network namespaces and soft0; test_two_wires.py cuts the wire between guests": [
        "test_network_cut.py",
    ],
    "copies on one host, without a device": ["test_p2p.py", "test_p2p_ends.py"],
    "the tests' own tools": ["test_partners.py"],
    "several devices of soft0; test_two_wires.py has those of Soft-RoCE": ["test_rails.py"],
    "how an array becomes a list of elements, in the engine": [
        "test_collectives_arrays.py", "test_shapes.py",
    ],
    "stand-ins for the kernels of GPUs": ["test_gpu_group.py", "test_gpu_hosts.py"],
    "waits in which nothing arrives": ["test_signals.py", "test_timeouts.py"],
    "PyTorch, several times over": [
        "test_torch_any_source.py", "test_torch_backend.py", "test_torch_backend_forms.py",
        "test_torch_backend_groups.py", "test_torch_backend_mistakes.py",
        "test_torch_backend_sparse.py", "test_torch_programs.py", "test_torch_window.py",
    ],
    "as the control channel finds them out; test_peer_killed.py has the device's part": [
        "test_ways_to_end.py",
    ],
    "how ranks find each other": ["test_world.py", "test_world_runs.py", "test_world_launchers.py"],
    "faults on purpose, which soft0 alone has": [
        "test_integrity.py::test_a_bit_that_the_device_does_not_find_is_found",
    ],
    "maps more than the guest has": [
        "test_message_window.py::test_more_than_can_be_mapped_is_reported_with_the_knobs",
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
}  # fmt: skip
# Between two guests these stay out too. A case whose partner is a thread, or that has none, is left out
# by tests/contract/conftest.py.
OF_ONE_HOST = {
    "what errors are; the partner is a thread of the test": ["test_errors.py"],
    "what a fork leaves to the child": ["test_forking.py"],
    "finds the partner's ports in /proc": ["test_hostile_bytes.py"],
    "copies on one host": ["test_p2p.py", "test_p2p_ends.py"],
    "finds partners by their process numbers": ["test_partners.py"],
    "threads of one process; their partner only answers": ["test_threads.py"],
    "both queue pairs are the test's own": ["test_verbs_operations.py"],
    "starts its ranks on one host": [
        "test_collectives_await.py", "test_large_moves.py", "test_large_reductions.py",
        "test_one_core.py", "test_reductions.py", "test_world_split.py",
    ],
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
}  # fmt: skip


# On Soft iWARP these stay out too.
NOT_ON_IWARP = {
    "atomics, which iWARP lacks; inside/siw0 has how they are refused": ["test_atomics.py"],
    "transfers before a refused one may lack their confirmation; they are done, and say so": [
        "test_protection.py::test_operations_behind_a_refused_one_end_and_say_how",
    ],
    "kills the peer in an atomic": ["test_peer_killed.py::test_kill_9_in_the_middle[rxe0-fetch_add"],
    "begins with an atomic; inside/siw0 has what it is about": [
        "test_closing.py::test_closing_lets_go_of_the_device_whatever_is_kept",
    ],
    "queue pairs of the test's own, which rdma_cm alone connects": ["test_verbs_operations.py"],
    "posting is TCP in the call: about 2 ms, a time slice, on an emulated processor of a busy machine, where it was measured": [
        "test_one_core.py::test_two_processes_of_one_core_exchange_notifications_without_sleeping[rxe0-soft0",
    ],
}  # fmt: skip


@dataclass(frozen=True)
class Selection:
    """device: what it runs on; files: paths for pytest; options and environment: what narrows them; seconds: at most.

    left_out: why what does not run, a line each.
    """

    device: str
    files: list[Path]
    options: list[str]
    environment: dict[str, str]
    seconds: float
    left_out: list[str]

    @property
    def fabric(self) -> str:
        """Of its device: "rxe" or "siw"."""
        return self.device.rstrip("0")


# The kernel pins pages whoever allocated them, and importing PyTorch alone takes a minute there.
# The partner is a process; a thread of the test itself only where the case is about threads.
NARROW = {"ZEROHOP_TEST_KINDS": "numpy", "ZEROHOP_TEST_PARTNERS": "process"}


def contract_files() -> list[str]:
    return sorted(path.name for path in (REPOSITORY / CONTRACT).glob("test_*.py"))


def in_one_guest(device: str) -> Selection:
    """device: one of DEVICES."""
    inside = sorted(
        path.relative_to(REPOSITORY) for path in (REPOSITORY / INSIDE / device).glob("with_*.py")
    )
    if os.environ.get("ZEROHOP_TEST_VM") == "full":
        return _select(device, {}, {}, 7200.0, inside)
    return _select(device, LEFT_OUT, NARROW, 1500.0, inside)


def between_two_guests(device: str) -> Selection:
    """Without what tests of one guest there are inside: those are about programs, not hosts."""
    far = {"ZEROHOP_TEST_PARTNERS": "far"}
    if os.environ.get("ZEROHOP_TEST_VM") == "full":
        return _select(device, OF_ONE_HOST, far, 7200.0)
    return _select(device, {**LEFT_OUT, **OF_ONE_HOST}, {**NARROW, **far}, 1200.0)


def cases(selections: Mapping[str, Selection]) -> list[object]:
    """Of pytest.mark.parametrize: each device with each of its files."""
    return [
        pytest.param(device, file, id=f"{device}-{file.stem}")
        for device, selection in selections.items()
        for file in selection.files
    ]


def _select(
    device: str,
    left_out: dict[str, list[str]],
    environment: dict[str, str],
    seconds: float,
    inside: Sequence[Path] = (),
) -> Selection:
    reasons = {**left_out, **(NOT_ON_IWARP if device == "siw0" else {})}
    why = {
        name.replace("[rxe0", f"[{device}").replace("-rxe0-", f"-{device}-"): reason
        for reason, names in reasons.items()
        for name in names
    }
    chosen = [CONTRACT / name for name in contract_files() if name not in why]
    options = [f"--deselect={CONTRACT / name}" for name in why if "::" in name]
    reported = [f"{name}: {reason}" for name, reason in why.items()]
    return Selection(device, [*chosen, *inside], options, environment, seconds, reported)
