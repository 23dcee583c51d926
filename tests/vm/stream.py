"""Many operations of every kind under way from one guest to the other, each accounted for.

A block of the target may hold only what a write that ended well put there or, behind one that failed, what
its error says it may have written. The source of a failed write is overwritten: were the write repeated,
that would show.
"""

from dataclasses import dataclass

STOP = "/run/stop"  # in guest a: its presence ends the stream
BLOCKS = 64
POISON = 255

# Runs where ep, peer, nbytes and the peer's "inbox", all zero, and "counter" are.
CODE = f"""
import os
size = nbytes // {BLOCKS}
source = ep.empty(nbytes)
view = np.asarray(source).reshape({BLOCKS}, size)
target, there = peer["inbox"], peer["counter"][0]
places = [(source[i : i + size], target[i : i + size]) for i in range(0, nbytes, size)]
allowed = [[0] for _ in places]
usable = list(range({BLOCKS}))
failures, added, maybe_added, rounds, longest = [], 0, 0, 0, 0.0
while len(usable) >= 4 and not os.path.exists({STOP!r}):
    began = time.monotonic()
    value = 1 + rounds % 250
    batch, usable = usable[:4], usable[4:]
    for i in batch:
        view[i] = value
    writes = [peer.write(*places[i], timeout=60) for i in batch]
    addition = peer.fetch_add(there, 1)
    for i, write in zip(batch, writes):
        try:
            write.wait(60)
        except zh.VerbsError as error:
            failures.append([error.effect, str(error)])
            allowed[i] = allowed[i] + [value] * (error.effect != "nothing")
            view[i] = {POISON}
        else:
            allowed[i] = [value]
            usable.append(i)
    try:
        addition.wait(60)
        added += 1
    except zh.VerbsError as error:
        failures.append([error.effect, str(error)])
        maybe_added += error.effect != "nothing"
    rounds += 1
    longest = max(longest, time.monotonic() - began)
    if rounds == 2:
        say("streaming")
answer = dict(
    failures=failures, allowed=allowed, added=added, maybe_added=maybe_added, longest=longest
)
"""

# On the other side, at the end: what stands in each block, and how often was added.
FOUND = f"""
answer = [
    [np.unique(block).tolist() for block in np.asarray(inbox).reshape({BLOCKS}, -1)],
    int(np.asarray(counter)[0]),
]
"""


@dataclass(frozen=True)
class Stream:
    """failures: (effect, message). longest: seconds of the longest round of four writes."""

    failures: list[tuple[str, str]]
    allowed: list[list[int]]
    added: int
    maybe_added: int
    longest: float

    def check(self, found: list[list[int]], added: int) -> None:
        for number, (values, may) in enumerate(zip(found, self.allowed, strict=True)):
            assert set(values) <= set(may), f"block {number} holds {values}, may hold {may}"
        assert self.added <= added <= self.added + self.maybe_added
        for effect, message in self.failures:
            assert effect in ("nothing", "some", "all"), message
            words = "nothing was" if effect == "nothing" else f"{effect} of the data may have been"
            assert f"({words} written)" in message
