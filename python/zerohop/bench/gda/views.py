"""The tables of `zerohop bench gda`: over size, and those of figures that have one size each."""

from __future__ import annotations

from zerohop.bench.gda.plan import (
    POSTERS,
    RING_WAYS,
    SHAPES,
    VALUE_NBYTES,
    WIDE_NBYTES,
    WORD_NBYTES,
)
from zerohop.bench.report import Sheet, View

VIEWS = (
    View("put_notify", "put_notify, one way", "one_way"),
    View("put_notify_both", "put_notify that CPUs hear, too", "one_way"),
    *(View(f"put_notify_{way}", f"put_notify, way {way}", "one_way") for way in RING_WAYS),
)
_DRIVERS = {"python": "the host, from Python", "cpp": "the host, from C++"}
_THREADS = {shape: f"{blocks} x {threads} threads" for shape, (blocks, threads) in SHAPES.items()}
_ENTRIES = tuple(
    (
        f"{way}, {threads} thread{'s' if threads > 1 else ''}",
        f"entries_{way}_{threads}",
        VALUE_NBYTES,
    )
    for way in RING_WAYS
    for threads in POSTERS
)
SHEETS = (
    Sheet(
        "the barest there is, one way",
        "one_way",
        (("put and look for a word", "word", WORD_NBYTES),),
    ),
    Sheet(
        "puts by all of a GPU",
        "bandwidth",
        (("132 blocks of 512 threads", "put_wide", WIDE_NBYTES),),
    ),
    Sheet(
        "8 B messages",
        "rate",
        (
            *((f"put, {said}", f"puts_{shape}", VALUE_NBYTES) for shape, said in _THREADS.items()),
            *(
                (f"value, {said}", f"values_{shape}", VALUE_NBYTES)
                for shape, said in _THREADS.items()
            ),
            *(
                (f"write, {said}", f"host_puts_{driver}", VALUE_NBYTES)
                for driver, said in _DRIVERS.items()
            ),
        ),
    ),
    Sheet("what a kernel pays to post an entry", "posted", _ENTRIES),
    Sheet("until an entry is done, of many", "done", _ENTRIES),
)
