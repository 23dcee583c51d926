"""Steps of queue pairs between both ends, on bare verbs: each kind of request, and what happens when receives run out."""

from __future__ import annotations

import time
from collections.abc import Callable
from functools import partial
from typing import Any

from zerohop import verbs
from zerohop.verify.adapter.end import CHUNK_NBYTES, HALF, WAIT_S, End, pattern
from zerohop.verify.adapter.on_device import is_iwarp
from zerohop.verify.adapter.setup import Setup
from zerohop.verify.adapter.step import Failed, Figures, Impossible, Steps

STEPS = Steps()
TRAFFIC = ("port", "gid", "states")
SUCCESS = "IBV_WC_SUCCESS"
LARGE_NBYTES = 1_000_003  # many packets, the last one of 3 bytes more or less
OFFSET = 4093  # begins in one page
MESSAGE_NBYTES = 1000
MANY = 64
SRQ_DEPTH = 8
MORE = 4  # sends than receives
SILENCE_S = 0.2  # in which nothing may arrive


def check(said: str) -> None:
    """Fails with what an end found to differ."""
    if said:
        raise Failed(said, "report this: bytes were lost or misplaced without an error")


def expect(what: str, found: object, wanted: object) -> None:
    if found != wanted:
        raise Failed(f"{what}: {found} instead of {wanted}", "report this")


@STEPS.add(
    "states",
    "A queue pair goes through RESET, INIT, RTR and RTS, to ERR, where its receives are flushed, and back to RESET.",
    needs=("port", "gid", "create queues"),
)
def states(setup: Setup) -> Figures:
    if is_iwarp(setup.device):
        remedy = "see the step endpoints, by the engine, which connects in that way"
        raise Impossible("the device is iWARP, whose queue pairs rdma_cm connects", remedy)
    near, far = setup.near, setup.far
    [theirs] = far.open(1)
    near.open(1)
    pair, remote = near.pairs[0], verbs.QueuePairAddress.from_bytes(bytes.fromhex(theirs))
    seen = [pair.state]
    begin = time.perf_counter()
    moves: list[Callable[[], None]] = [
        pair.init,
        partial(pair.rtr, remote),
        partial(pair.rts, remote),
    ]
    for move in moves:
        move()
        seen.append(pair.state)
    took = time.perf_counter() - begin
    near.offer(1)
    pair.error()
    seen.append(pair.state)
    flushed = near.take_received(1)
    pair.reset()
    seen.append(pair.state)
    expect("states", seen, ["RESET", "INIT", "RTR", "RTS", "ERR", "RESET"])
    expect("the flushed receive", [c[1] for c in flushed], ["IBV_WC_WR_FLUSH_ERR"])
    return {"states": " ".join(seen), "to_rts_us": round(took * 1e6, 1)}


@STEPS.add(
    "write and read",
    "A write of many packets arrives whole, at its place and nowhere else; a read brings the same bytes back.",
    TRAFFIC,
)
def write_and_read(setup: Setup) -> Figures:
    near = setup.connect()
    address, key = setup.far.memory()
    place = address + OFFSET, key
    near.array[:LARGE_NBYTES] = pattern(1, LARGE_NBYTES)
    near.pairs[0].post_send("write", near.region[:LARGE_NBYTES], remote=place)
    near.take_sent()
    check(setup.far.differs(1, LARGE_NBYTES, OFFSET))
    back = near.region[HALF + 7 : HALF + 7 + LARGE_NBYTES]
    near.pairs[0].post_send("read", back, remote=place)
    near.take_sent()
    check(near.differs(1, LARGE_NBYTES, 7))
    return {"bytes_each_way": LARGE_NBYTES, "compared": "every byte, and those beside"}


@STEPS.add("send", "Sends arrive in the receives offered, in order, each with its length.", TRAFFIC)
def send(setup: Setup) -> Figures:
    near = setup.connect()
    setup.far.offer(4)
    for number in range(4):
        _send(near, 0, 10 + number, MESSAGE_NBYTES)
    near.take_sent(4)
    came = setup.far.take_received(4, seconds=WAIT_S)
    wanted = [[n, SUCCESS, "RECV", MESSAGE_NBYTES, None, 0] for n in range(4)]
    expect("receives", came, wanted)
    check(setup.far.differs_in_chunks([10, 11, 12, 13], MESSAGE_NBYTES))
    return {"messages": 4, "bytes_each": MESSAGE_NBYTES}


@STEPS.add(
    "immediate",
    "A write with an immediate value takes one receive, whose completion has the value.",
    TRAFFIC,
)
def immediate(setup: Setup) -> Figures:
    near = setup.connect()
    setup.far.offer(1)
    near.array[:MESSAGE_NBYTES] = pattern(20, MESSAGE_NBYTES)
    place = setup.far.memory()
    near.pairs[0].post_send(
        "write_with_imm", near.region[:MESSAGE_NBYTES], remote=place, imm=0xC0FFEE
    )
    near.take_sent()
    came = setup.far.take_received(1, seconds=WAIT_S)
    expect("the receive", came, [[0, SUCCESS, "RECV_RDMA_WITH_IMM", MESSAGE_NBYTES, 0xC0FFEE, 0]])
    check(setup.far.differs(20, MESSAGE_NBYTES))
    return {"bytes": MESSAGE_NBYTES, "value": "0xc0ffee"}


@STEPS.add(
    "inline",
    "An inline write is copied while it is posted: its source is overwritten at once.",
    TRAFFIC,
)
def inline(setup: Setup) -> Figures:
    near = setup.connect()
    granted: int = near.pairs[0].options["inline_bytes"]
    if not granted:
        raise Impossible(
            "the device grants no inline data", "nothing: small writes take another read of memory"
        )
    near.array[:granted] = pattern(30, granted)
    near.pairs[0].post_send("write", near.region[:granted], remote=setup.far.memory(), inline=True)
    near.array[:granted] = 0xFF
    near.take_sent()
    check(setup.far.differs(30, granted))
    return {"bytes": granted}


@STEPS.add(
    "atomics",
    "Fetch-and-add and compare-and-swap return the old value and change the word rightly.",
    TRAFFIC,
)
def atomics(setup: Setup) -> Figures:
    capability = setup.device.attributes["atomic_cap"]
    if capability == "NONE":
        raise Impossible(
            "the device has no atomics", "use a device with them for fetch_add and compare_swap"
        )
    near = setup.connect()
    old = near.array[:8].view("uint64")
    place = setup.far.memory()
    setup.far.set_word(2**64 - 3)

    def request(operation: str, **operands: Any) -> tuple[int, int]:
        near.pairs[0].post_send(operation, near.region[:8], remote=place, **operands)
        near.take_sent()
        return int(old[0]), setup.far.word()

    expect("fetch_add of 5", request("fetch_add", add=5), (2**64 - 3, 2))
    expect("compare_swap that fits", request("compare_swap", compare=2, swap=9), (2, 9))
    expect("compare_swap that does not", request("compare_swap", compare=2, swap=7), (9, 9))
    return {"atomic_cap": capability}


@STEPS.add("srq", "Two queue pairs take receives from one shared receive queue.", TRAFFIC)
def srq(setup: Setup) -> Figures:
    near = setup.connect(2, SRQ_DEPTH)
    setup.far.offer(4)
    for number in range(4):
        _send(near, number % 2, 40 + number, MESSAGE_NBYTES)
        near.take_sent()
    came = setup.far.take_received(4, seconds=WAIT_S)
    expect("receives (number, status, queue pair)", [[c[0], c[1], c[5]] for c in came],
           [[n, SUCCESS, n % 2] for n in range(4)])  # fmt: skip
    check(setup.far.differs_in_chunks([40, 41, 42, 43], MESSAGE_NBYTES))
    return {"queue_pairs": 2, "messages": 4}


@STEPS.add(
    "srq exhausted",
    "Sends that find no receive wait, none is lost, and go on once receives are offered; with no retries they end in an error.",
    TRAFFIC,
)
def srq_exhausted(setup: Setup) -> Figures:
    near = setup.connect(1, SRQ_DEPTH)
    setup.far.offer(SRQ_DEPTH)
    total = SRQ_DEPTH + MORE
    for number in range(total):
        _send(near, 0, 50 + number, MESSAGE_NBYTES)
    expect("arrived at first", len(setup.far.take_received(SRQ_DEPTH, seconds=WAIT_S)), SRQ_DEPTH)
    early = setup.far.take_received(1, seconds=SILENCE_S)
    expect("arrived without a receive", early, [])
    begin = time.perf_counter()
    setup.far.offer(MORE, SRQ_DEPTH)
    rest = setup.far.take_received(MORE, seconds=WAIT_S)
    took = time.perf_counter() - begin
    expect("arrived afterwards", [c[0] for c in rest], list(range(SRQ_DEPTH, total)))
    near.take_sent(total)
    check(setup.far.differs_in_chunks([50 + n for n in range(total)], MESSAGE_NBYTES))
    return {
        "waited": MORE,
        "after_receives_ms": round(took * 1e3, 2),
        "without_retries": _refused(setup),
    }


def _refused(setup: Setup) -> str:
    """The status of a send that finds no receive, and may not try again."""
    near = setup.connect(1, SRQ_DEPTH, rnr_retries=0)
    _send(near, 0, 60, MESSAGE_NBYTES)
    until = time.monotonic() + WAIT_S
    while time.monotonic() < until:
        if found := near.poll_sent():
            expect("the status", found[0][1], "IBV_WC_RNR_RETRY_EXC_ERR")
            return str(found[0][1])
    raise Failed(f"a send without a receive and without retries did not end in {WAIT_S:g} s")


@STEPS.add(
    f"{MANY} queue pairs",
    "Each of many queue pairs carries its own bytes at the same time as the others.",
    TRAFFIC,
    60.0,
)
def many(setup: Setup) -> Figures:
    begin = time.perf_counter()
    near = setup.connect(MANY)
    took = time.perf_counter() - begin
    address, key = setup.far.memory()
    for number in range(MANY):
        here = number * CHUNK_NBYTES
        near.array[here : here + MESSAGE_NBYTES] = pattern(100 + number, MESSAGE_NBYTES)
        source = near.region[here : here + MESSAGE_NBYTES]
        near.pairs[number].post_send("write", source, remote=(address + here, key))
    near.take_sent(MANY)
    check(setup.far.differs_in_chunks([100 + n for n in range(MANY)], MESSAGE_NBYTES))
    return {"queue_pairs": MANY, "made_and_connected_ms": round(took * 1e3, 1)}


def _send(near: End, index: int, seed: int, nbytes: int) -> None:
    """From a place of its own: the source of a send that waits must stay."""
    begin = (seed % MANY) * CHUNK_NBYTES
    near.array[begin : begin + nbytes] = pattern(seed, nbytes)
    near.pairs[index].post_send("send", near.region[begin : begin + nbytes])
