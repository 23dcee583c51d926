"""What a World of some ranks has at the Endpoint that it shares with others, until it is freed."""

from __future__ import annotations

import numpy as np

from zerohop import _core
from zerohop.endpoint import Endpoint
from zerohop.errors import Error


class Holdings:
    """Stands in for the Endpoint."""

    def __init__(self, endpoint: Endpoint) -> None:
        self._endpoint = endpoint
        self._made: list[_core.Memory] = []
        self._shared: dict[str, list[_core.Memory]] = {}
        self._freed = False

    @property
    def peers(self) -> list[_core.Peer]:
        return self._endpoint.peers

    @property
    def closed(self) -> bool:
        return self._endpoint.closed

    def reset_notify(self, slot: int) -> int:
        return self._endpoint.reset_notify(slot)

    def empty(self, nbytes: int) -> _core.Memory:
        """For rare transfers: it takes no descriptor, as exportable memory would."""
        self._check()
        self._made.append(self._endpoint.register(np.zeros(nbytes, np.uint8)))
        return self._made[-1]

    def share(self, name: str, memory: _core.Memory) -> None:
        self._check()
        self._shared.setdefault(name, []).append(memory)
        self._endpoint.share(name, memory)

    def _check(self) -> None:
        if self._freed:
            raise Error("the World of this memory is closed")

    def free(self) -> list[_core.Memory]:
        """Ends all that was shared. Returns memory that ranks may be about to access, who have looked it up before: close it later.

        An access to closed memory breaks the queue pair (which is repaired), and with it what others have under way there.
        """
        self._freed = True
        for name, memories in self._shared.items():
            self._endpoint.unshare(name)
            for memory in memories:
                if not any(memory is each for each in self._made):
                    memory.close()
        self._shared.clear()
        made, self._made = self._made, []
        return made
