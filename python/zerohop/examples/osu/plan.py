"""Which sizes, how often, and where in the arrays."""

from __future__ import annotations

from dataclasses import dataclass

__all__ = ["WINDOW", "Plan"]

WINDOW = 64  # writes under way in the bandwidth test
_LARGE = 8192  # bytes; larger ones are sent less often
_TIMES = {"latency": (1000, 100), "bw": (100, 20)}  # small, large


@dataclass(frozen=True)
class Plan:
    test: str  # "latency", "bw"
    least: int  # bytes
    most: int
    iterations: int | None  # None: by size

    @property
    def sizes(self) -> list[int]:
        """From the least, doubled up to the most."""
        sizes = [self.least]
        while 2 * sizes[-1] <= self.most:
            sizes.append(2 * sizes[-1])
        return sizes

    def times(self, nbytes: int) -> int:
        return self.iterations or _TIMES[self.test][nbytes > _LARGE]

    def places(self, nbytes: int) -> list[slice]:
        """Where each write of a turn is read and lands: apart from each other, as far as there is room."""
        if self.test == "latency":
            return [slice(0, nbytes)]
        room = max(1, self.most // nbytes)
        return [slice(k % room * nbytes, (k % room + 1) * nbytes) for k in range(WINDOW)]
