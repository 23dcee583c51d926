"""What `zerohop bench gda` measures: the tests, their sizes and shapes, and how often."""

from __future__ import annotations

from zerohop.bench.plan import KIB, MIB, Options, Step

QUICK_SIZES = (8, 4 * KIB, 64 * KIB)
FULL_SIZES = (8, 64, 512, 4 * KIB, 16 * KIB, 64 * KIB)
SMALL_NBYTES = 64  # up to this size one thread puts, above it a block
WORD_NBYTES = 4  # of the notification of a bare copy
VALUE_NBYTES = 8
WIDE_NBYTES = 64 * MIB
WIDE_SHAPE = (132, 512)  # blocks and threads of a kernel that fills the GPU
PIECE_NBYTES = 64 * KIB  # put by a block in one call
SHAPES = {"1x1": (1, 1), "1x512": (1, 512), "132x512": (132, 512)}
HOST_TESTS = {driver: f"host_puts_{driver}" for driver in ("python", "cpp")}  # the host's writes
RING_WAYS = ("proxy", "direct")
PLACES = ("host", "gpu")  # of the send queue and the completion queue of a direct queue
PLACED = {f"put_notify_direct_{sq}_{cq}": (sq, cq) for sq in PLACES for cq in PLACES}
POSTERS = (1, 32, 128)  # threads that post entries at the same time
ENTRIES = 256  # posted in total: fewer than a ring holds
ARENA_NBYTES = 2 * WIDE_NBYTES  # per side
WARM_SHARE = 10


def wanted_sizes(options: Options) -> tuple[int, ...]:
    return options.sizes or (QUICK_SIZES if options.quick else FULL_SIZES)


def gda_steps(options: Options, one_gpu: bool) -> list[Step]:
    """one_gpu: both processes use it in turns of milliseconds."""
    rounds, slow_rounds = (20, 10) if one_gpu else (2000, 200)
    sizes = [size for size in wanted_sizes(options) if size <= WIDE_NBYTES]
    turns = 3 if options.quick else 6
    figures = [(test, size, rounds) for test in ("put_notify", "put_notify_both") for size in sizes]
    figures.append(("put_wide", WIDE_NBYTES, 1))
    for test in ("puts", "values"):
        figures += [(f"{test}_{shape}", VALUE_NBYTES, 2000) for shape in SHAPES]
    figures += [(test, VALUE_NBYTES, 4000) for test in HOST_TESTS.values()]
    for way in RING_WAYS:
        for threads in POSTERS:
            figures.append((f"entries_{way}_{threads}", VALUE_NBYTES, ENTRIES // threads))
        figures += [(f"put_notify_{way}", size, slow_rounds) for size in sizes]
    if options.rings:
        figures += [(test, VALUE_NBYTES, slow_rounds) for test in PLACED]
    return [Step(test, nbytes, turns, times) for test, nbytes, times in figures]


def warm_rounds(times: int) -> int:
    """Additional untimed rounds at the start of a ping-pong, because the two launches are not simultaneous."""
    return max(1, times // WARM_SHARE)


def threads_of(nbytes: int) -> int:
    """Threads of a ping-pong: whole warps, with 16 bytes per thread if a block holds that many."""
    if nbytes <= SMALL_NBYTES:
        return 1
    return min(1024, max(32, -(-nbytes // 16 // 32) * 32))
