"""The C++ tests of soft0's queues, by the unmodified libibverbs and libmlx5 on a simulated adapter.

Queues that CPU threads drive by entries and doorbells, as kernels of a GPU do (mlx5dv_init_obj), errors,
completion queues, shared receive queues.
"""

import subprocess

import pytest

from mlx5 import selection
from mlx5.simulation import library, simulation

# Cases by how their names begin: what does not hold on an adapter, or not with libmlx5.
LEFT_OUT = {
    "libmlx5 makes queues larger than was asked for": [
        "rings turn many times",
        "a producer that fills the ring",
        "entries that nobody can carry out",
        "a record that runs ahead",
        "an overrun completion queue",
        "posts that can never work",
        "what a shared queue cannot be",
    ],
    "receives, and entries of direct queues, are named by their places": [
        "immediate data completes a receive",
        "a direct queue pair may complete to a queue that is polled",
    ],
    "only soft0 lays queues out so, or in memory of the caller": [
        "every part of the queues lies in whole pages",
        "queues may lie in memory that the caller gives",
    ],
    "only soft0 knows which calls a direct queue refuses": ["what is direct is refused"],
    "an adapter does not learn that its peer is gone before it sends": [
        "a peer that went away while nothing was posted",
        "a destroyed or failed queue pair is noticed",
    ],
    "only with soft0 a copier is the caller's, and its errors are in completions": [
        "keys",  # and bounds of a GPU's memory; a comma would end the name
        "a write of which any copy fails",
        "of small writes only those in front",
        "a read of which any copy fails",
        "an atomic or a message of which any copy",
        "a GPU that hangs",
    ],
    "the peer is a socket of the test": [
        "the receive of a message that is cut off",
        "the receive of a message whose queue pair is destroyed",
    ],
    "an adapter may complete a send before the peer sees its receive completed": [
        "a queue does not shrink below what it holds",
    ],
    "the simulation takes all that arrives for solicited": ["a queue armed for solicited"],
}

# Not where there is a minute for all of this.
SLOW = [
    "queue pairs are destroyed under a thread that rings",
    "two direct queue pairs write to each other",
    "many threads poll one completion queue",
    "random bytes as entries",
    "the bytes before",
    "an idle direct queue pair",
]


@pytest.fixture(scope="module")
def program():
    found = library().with_name("mlx5sim_tests")
    assert found.exists(), f"there is no {found}: make mlx5 builds it"
    return found


@pytest.mark.timeout(240)
def test_queues_of_libmlx5(program):
    names = [name for names in LEFT_OUT.values() for name in names]
    if not selection.is_full():
        names += SLOW
    with simulation(devices=1) as adapters:
        printed = adapters.run(
            program,
            "--test-case-exclude=" + ",".join(f"{name}*" for name in names),
            timeout=200,
            ZEROHOP_TEST_VERBS="libibverbs",
        )
    assert "0 failed" in printed
    assert int(printed.split("test cases:")[1].split("|")[1].split()[0]) > 35, printed


def test_each_case_that_is_left_out_exists(program):
    """One that was renamed would run again unnoticed."""
    listed = subprocess.run([program, "-ltc"], capture_output=True, text=True, check=True).stdout
    for names in (*LEFT_OUT.values(), SLOW):
        for name in names:
            assert f"\n{name}" in listed, name
