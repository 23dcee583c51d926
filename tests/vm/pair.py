"""Two guests joined by wires, with one device per wire: rxe0, rxe1, ... or siw0, siw1, ..."""

from __future__ import annotations

from contextlib import ExitStack
from types import TracebackType

from vm.guest import Guest, python
from vm.kernel import kernel
from vm.qemu import Machine
from vm.wire import Wire


class Pair:
    """`with Pair(wires=2) as pair:` boots both; `pair.a`, `pair.b`, `pair.wires`."""

    def __init__(
        self, wires: int = 1, cpus: int = 2, memory_mib: int = 1536, fabric: str = "rxe"
    ) -> None:
        self.wires = [Wire(number) for number in range(wires)]
        self._cpus, self._memory_mib, self._fabric = cpus, memory_mib, fabric
        self._stack = ExitStack()

    def _boot(self, side: int) -> Guest:
        machine = Machine(
            kernel(),
            python(),
            side=side,
            wires=[wire.ends[side].fileno() for wire in self.wires],
            cpus=self._cpus,
            memory_mib=self._memory_mib,
            fabric=self._fabric,
        )
        guest = Guest(machine, name="ab"[side])
        self._stack.callback(guest.close)
        return guest

    def __enter__(self) -> Pair:  # noqa: PYI034  Self needs Python 3.11
        with self._stack:  # both are closed if one fails to boot
            self.a, self.b = self._boot(0), self._boot(1)
            for guest in self.guests:
                guest.wait_ready()
            for wire in self.wires:
                wire.plug(self.a, self.b)
            self._stack = self._stack.pop_all()
        return self

    @property
    def guests(self) -> tuple[Guest, Guest]:
        return self.a, self.b

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._stack.close()
