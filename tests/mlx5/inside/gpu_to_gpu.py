"""From one array on a GPU into another, by a simulated adapter: requests of the host, and kernels with each placement of rings.

Prints a line for each that works; the first failure ends it. Each byte is compared with what the CUDA driver copies.
"""

import itertools
import sys
from typing import Any

import numpy as np
from zerohop.verify.adapter.end import pattern
from zerohop.verify.adapter.gpu import NBYTES, GpuPair

PIECE, SLOT, WAIT_S = 64 << 10, 4, 10.0
OFFSET, MOVED = 4093, 3_000_001


def move(pair: GpuPair) -> None:
    source, target = pair.new_source(), pair.memory("auto")
    there = target[OFFSET : OFFSET + MOVED].remote
    print("registered by", source.registration, "and", target.registration)
    pair.store(source, pattern(1, NBYTES))
    pair.store(target, np.zeros(NBYTES, np.uint8))
    pair.peer.write(source[:MOVED], there, require="gpudirect").wait()
    compare(pair, target, OFFSET, pattern(1, NBYTES)[:MOVED])
    print("written from GPU to GPU")
    pair.store(source, np.zeros(NBYTES, np.uint8))
    pair.peer.read(there, source[7 : 7 + MOVED], require="gpudirect").wait()
    compare(pair, source, 7, pattern(1, NBYTES)[:MOVED])
    print("read from GPU to GPU")


def compare(pair: GpuPair, memory: Any, offset: int, wanted: Any) -> None:
    whole = np.zeros(NBYTES, np.uint8)
    whole[offset : offset + wanted.size] = wanted
    wrong = np.flatnonzero(pair.content(memory) != whole)
    assert not wrong.size, f"{wrong.size} bytes differ, the first at {wrong[0]}"


def drive(pair: GpuPair, seed: int, target: Any, **places: str) -> None:
    source = pair.new_source()
    pair.store(source, pattern(seed, NBYTES))
    if target.device == "cpu":
        np.asarray(target).fill(0)
    else:
        pair.store(target, np.zeros(NBYTES, np.uint8))
    with pair.peer.device_queue(source, target.remote, way="direct", **places) as queue:
        sizes = np.uint64(NBYTES), np.uint64(PIECE)
        took, _ = pair.run("drive", queue.value, *sizes, np.uint32(SLOT), np.uint32(seed))
        heard = pair.far.wait_notify(SLOT, WAIT_S)
        assert heard == seed, f"heard {heard}, not {seed}; the queue says {queue.error}"
        pair.check(target, seed, NBYTES, 0)
    print(f"driven to {target.device} in {took * 1e3:.1f} ms, places {places}", flush=True)


def main(device: str) -> None:
    pair = GpuPair(device)
    move(pair)
    targets = pair.memory("auto"), pair.host
    for sends, completions in itertools.product(("host", "gpu"), repeat=2):
        for number, target in enumerate(targets):
            seed = 100 + 10 * number
            drive(pair, seed, target, send_queue=sends, completion_queue=completions)
    pair.close()
    print("all")


if __name__ == "__main__":
    main(sys.argv[1])
