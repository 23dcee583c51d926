"""What `zerohop bench p2p` measures between GPUs: tests, sizes, and the memory for them."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from zerohop.bench.plan import KIB, LARGE_NBYTES, MIB, Options, Plan, Step, make_plan

QUICK_SIZES = (8, 4 * KIB, 64 * KIB, MIB, 16 * MIB, 256 * MIB)
SIZED_TESTS = ("write_latency", "write", "read", "both")
BLOCK_TESTS = {"write_many_4k": 4 * KIB, "write_many_16k": 16 * KIB, "write_many_64k": 64 * KIB}
BLOCKS_NBYTES = 64 * MIB  # of a write_many: 16384 blocks of 4 KiB, 4096 of 16 KiB, 1024 of 64 KiB
HALO_NBYTES, HALO_PITCH = 64, 4 * KIB  # per row: bytes that move, and total
HALO_TOTAL = 8192 * HALO_NBYTES
POSTS = 32  # posted per clock reading, and then waited for
BATCHES = 50
# Rounds of a stream-to-stream ping-pong, all enqueued ahead: at most four operations each. A stream takes
# about a thousand before the driver blocks the caller.
ROUNDS = 64
SHARE_OF_FREE = 0.7  # part of a GPU's free memory, for the arenas of all contenders together


def gpu_plan(options: Options, free: int, gpus: int) -> Plan:
    """`free`: free bytes of the fuller GPU. A single GPU holds both sides' arenas."""
    arenas = (1 + len(options.peers)) * (2 if gpus == 1 else 1)
    return make_plan(options, free * SHARE_OF_FREE / arenas / 2, QUICK_SIZES)


def arena_nbytes(plan: Plan) -> int:
    """Size for one side: a half to read from and a half to write to."""
    return 2 * max(*plan.sizes, BLOCKS_NBYTES, HALO_TOTAL // HALO_NBYTES * HALO_PITCH)


def steps(plan: Plan) -> list[Step]:
    found = [plan.step(test, nbytes) for nbytes in plan.sizes for test in SIZED_TESTS]
    found += [plan.step(test, BLOCKS_NBYTES) for test in BLOCK_TESTS]
    found += [plan.step("halo", HALO_TOTAL), plan.step("post_write", 8)]
    small = [nbytes for nbytes in plan.sizes if nbytes <= LARGE_NBYTES]
    return found + [plan.step("stream_notify", nbytes) for nbytes in small]


def places(count: int) -> npt.NDArray[np.int64]:
    """The place of each of `count` blocks: the same permutation for all contenders."""
    return np.random.default_rng(count).permutation(count)
