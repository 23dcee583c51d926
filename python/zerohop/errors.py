"""The exceptions of zerohop. The C++ core raises these very classes."""

from __future__ import annotations

import copy
from typing import TypeVar

__all__ = [
    "AuthenticationError",
    "CudaError",
    "Error",
    "IntegrityError",
    "PeerLost",
    "ProtocolError",
    "RegistrationError",
    "RouteUnavailable",
    "TransferTimeout",
    "VerbsError",
    "reworded",
]


class Error(RuntimeError):
    """Base of all errors of zerohop.

    Attributes:
        code: the number given by the source (errno, ``ibv_wc_status``, ``CUresult``), 0 if none.
        effect: what the failed operation may have written at its destination:
            ``"nothing"``, ``"some"`` or ``"all"`` of the data.
    """

    code: int
    effect: str

    def __init__(self, message: str = "", code: int = 0, effect: str = "nothing") -> None:
        super().__init__(message)
        self.code = code
        self.effect = effect


class VerbsError(Error):
    """A verbs call or work request failed; ``code`` is an errno or an ``ibv_wc_status``."""


class CudaError(Error):
    """A CUDA driver call failed; ``code`` is its ``CUresult``."""


class PeerLost(Error):
    """The peer died, hangs, left, or cannot be reached; ``code`` is ``errno.EUSERS`` if it accepts no more Peers."""


class TransferTimeout(Error, TimeoutError):
    """A wait ended before its event.

    From ``Transfer.wait()``: the transfer continues and can write at any time, so ``effect`` is ``"all"`` even if
    nothing has been written yet. From any other call: ``effect`` is ``"nothing"``.
    """


class RegistrationError(Error):
    """Memory cannot be registered, or is no longer registered."""


class RouteUnavailable(Error):
    """The demanded route does not exist between these two arrays."""


class IntegrityError(Error):
    """The bytes that arrived differ from the source: their checksums (CRC32C) differ (``integrity=1``).

    The message names the pair of arrays, the range, the route, the peer and both checksums.

    Attributes:
        offset: first byte of the first range that differs, counted in C order of the elements. The damage lies in
            the range; not all of the range need differ.
        nbytes: length of that range, 1 MiB at most; for ``recv`` the length of the message.
    """

    offset: int
    nbytes: int

    def __init__(
        self,
        message: str = "",
        code: int = 0,
        effect: str = "all",
        offset: int = 0,
        nbytes: int = 0,
    ) -> None:
        super().__init__(message, code, effect)
        self.offset = offset
        self.nbytes = nbytes


class ProtocolError(Error):
    """Bytes arrived that no correct peer sends: another version, damage, or a foreign program."""


class AuthenticationError(Error):
    """The other side does not know the secret of the address."""


_E = TypeVar("_E", bound=Error)


def reworded(error: _E, message: str) -> _E:
    """The same error with all its attributes and another message."""
    other = copy.copy(error)
    other.args = (message,)
    return other
