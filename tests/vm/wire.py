"""A wire between two guests, which can be cut and healed while bytes are on it."""

import socket

from vm.guest import Guest

ENDS = (0, 1)


class Wire:
    """QEMU carries the frames of one network card of each guest over a socket pair."""

    def __init__(self, number: int) -> None:
        self.number = number
        self.ends = socket.socketpair()
        self._guests: list[Guest] = []

    def plug(self, a: Guest, b: Guest) -> None:
        """The guests run, and have inherited the ends."""
        self._guests = [a, b]
        for end in self.ends:
            end.close()

    def address(self, side: int) -> str:
        """The IPv4 address of that side's card (setup.sh gives it)."""
        return f"10.77.{self.number}.{side + 1}"

    def cut(self, *sides: int) -> None:
        """Pulls the cable out of both cards, or of the named sides' only.

        A card without its cable reports that its port is down. With side 1 only, side 0 notices
        nothing: its packets vanish.
        """
        self._set(False, sides or ENDS)

    def heal(self) -> None:
        self._set(True, ENDS)

    def _set(self, up: bool, sides: tuple[int, ...]) -> None:
        for side in sides:
            self._guests[side].qmp.order("set_link", name=f"wire{self.number}", up=up)
