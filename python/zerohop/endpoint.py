"""The Endpoint with the policy that belongs to Python: defaults, environment, context managers."""

from __future__ import annotations

import atexit
import ipaddress
import os
import sys
import time
import weakref
from types import TracebackType
from typing import TYPE_CHECKING, SupportsFloat

from zerohop import _core
from zerohop._endpoint.knobs import KNOBS, Knobs, chosen, warn_of_misspelt
from zerohop._endpoint.numbers import whole
from zerohop._endpoint.rails import interface_hint, joined, nearest_rails, preferred_adapters
from zerohop.errors import VerbsError, reworded

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from typing import SupportsIndex, TypeAlias

    from typing_extensions import Self, Unpack

    from zerohop._endpoint.faults import Faults
    from zerohop.observe.exposure import Place

    Seconds: TypeAlias = SupportsFloat | SupportsIndex

__all__ = ["Endpoint"]

_LONGEST_NAME = 1024  # bytes
_DEFAULT_TIMEOUT = 30.0  # seconds
_DEFAULT_SPIN = 200e-6  # seconds
_EXIT_S = 5.0  # that transfers under way have when the interpreter exits

_open: weakref.WeakSet[Endpoint] = weakref.WeakSet()
_is_before_logging = "logging" not in sys.modules  # and so behind it at exit


def _number_from_env(name: str, default: float) -> float:
    text = os.environ.get(name, "")
    if not text:
        return default
    try:
        value = float(text)
    except ValueError:
        value = -1.0
    if not 0 <= value < float("inf"):
        raise ValueError(f"{name}={text!r} is not a number of seconds >= 0: correct or unset it")
    return value


def _check_text(what: str, value: object) -> None:
    if value is not None and not isinstance(value, str):
        raise TypeError(f"{what} must be a str, not {type(value).__name__}")


def _check_name(name: object) -> None:
    _check_text("name", name)
    if isinstance(name, str) and (len(name.encode()) > _LONGEST_NAME or not name.isprintable()):
        raise ValueError(
            f"name must be printable text of at most {_LONGEST_NAME} bytes, as peers show it: "
            f"not {name[:40]!r} ({len(name.encode())} bytes)"
        )


def _check_address(host: str) -> None:
    try:
        ipaddress.ip_address(host)
    except ValueError:
        raise ValueError(
            f"host must be an IPv4 or IPv6 address of this machine, such as '127.0.0.1', not {host!r}: "
            "`getent ahosts NAME` shows those of a name"
        ) from None


def _check_seconds(what: str, value: object) -> None:
    if isinstance(value, bool) or not isinstance(value, SupportsFloat):
        raise TypeError(f"{what} must be a number of seconds, not {type(value).__name__}")
    if not 0 <= float(value) < float("inf"):
        raise ValueError(f"{what} must be a number of seconds >= 0, not {value}")


class Endpoint(_core.Endpoint):
    """This process's end of its connections: device, registered memory, notification board, peers.

    Args:
        device: a verbs device: ``"soft0"`` (the software HCA on loopback), ``"soft0@eth0"`` or
            ``"soft0@10.0.0.5"`` (on another interface), or an RDMA adapter such as ``"mlx5_0"``.
            Several (rails), ``"mlx5_0,mlx5_1"`` or ``["mlx5_0", "mlx5_1"]``, 8 at most: device i meets
            device i of the peer, as far as both have them. Transfers of more than ``stripe_bytes`` are cut
            into one share for each; smaller ones take the device nearest to the local memory. When one
            fails, its pending transfers fail, later ones take the others, and it is tried again every
            second; ``peer.stats()["rails"]`` tells. Control connections take the network of the first
            (or ``$ZEROHOP_HOST``): the Peer lives as long as that connection does.
            Default: ``$ZEROHOP_DEVICE``, else an adapter that can serve, of several the nearest to
            the GPU of this rank, ``zerohop.local_gpu(local_rank)``, if there is one, else the first; else ``"soft0"``; never several.
        timeout: bound of every wait that is given none, in seconds. With 0 such a wait looks once and
            raises TransferTimeout unless all is there already; connecting then never succeeds.
            Default: ``$ZEROHOP_TIMEOUT``, else 30.
        name: shown in messages, printable, at most 1024 bytes. Default: ``"<host>:<pid>"``.
        spin: how long a wait polls before it sleeps, in seconds that its thread has the core; longer costs
            CPU time, shorter costs latency. A wait gives way while it polls (sched_yield(2)), and sleeps
            after 20e-6 where another program computes on its core. Default: ``$ZEROHOP_SPIN``, else 200e-6.
        host: address of this host on which to listen for control connections: an IPv4 or IPv6 literal,
            not a name.
            Default: ``$ZEROHOP_HOST``, else where the device itself is reached.
        local_rank: of this process among those of its host, for that choice. Default: ``$ZEROHOP_LOCAL_RANK``, else what
            torchrun, mpirun or srun has told, else 0.
        registration: how GPU memory is registered where the call names nothing else: ``"auto"``,
            ``"dmabuf"``, ``"peermem"`` or ``"staged"``, as ``register()`` explains. Holds for ``register()``
            and ``empty()``, and for the GPU arrays that are given to transfers and messages as they are.
            Default: ``$ZEROHOP_REGISTRATION``, else ``"auto"``.
        metrics: where to tell the counters over HTTP, as ``zh.prometheus`` words them: ``"local"`` (a socket that is
            for this user alone, where ``zerohop top`` finds them), or a port besides: ``9400``, ``"9400-9415"`` (the
            first that is free, as several processes of one host want), ``0`` (any), on 127.0.0.1 unless another
            address of this host stands in front, ``"0.0.0.0:9400"``. Whoever reaches the port can read it: all users of
            this host at least.
            Endpoints of one process share it. ``metrics_url`` tells where. Default: ``$ZEROHOP_METRICS``, else nowhere.
        faults: what is to go wrong on purpose on the software HCA, for tests: a ``Faults``, or its words. Default:
            ``$ZEROHOP_FAULTS``, else nothing. With faults ``p2p`` is 0 unless it is given: p2p meets none.
        knobs: numbers that tune the device and its queue pairs, listed below. The values in effect
            are in ``peer.route(...).settings``, as are those of the keywords above.

    Closed by ``close()``, by ``with`` and ``async with``, and at exit.

    Raises:
        VerbsError: no such device, or it refuses (the message lists those that exist), or it cannot
            serve (no active port, no GID of the kind). iWARP adapters are refused for good: every Peer
            needs write with immediate, which iWARP has not; ``soft0@<its network interface>`` runs there.
        OSError: what ``metrics`` asks for cannot be had.
        TypeError, ValueError: a knob that does not exist or is out of range, or a word that says nothing.
    """

    _metrics_url: str | None = None
    _unexpose: Callable[[], object] | None = None  # ends what `metrics` asked for

    def __init__(
        self,
        device: str | Sequence[str] | None = None,
        *,
        timeout: float | None = None,
        name: str | None = None,
        spin: float | None = None,
        host: str | None = None,
        local_rank: int | None = None,
        registration: str | None = None,
        metrics: str | int | None = None,
        faults: Faults | str | None = None,
        **knobs: Unpack[Knobs],
    ) -> None:
        warn_of_misspelt(stacklevel=2)
        _check_name(name)
        _check_text("host", host)
        if local_rank is not None:
            local_rank = whole("local_rank", local_rank)
        _check_text("registration", registration)
        if registration is None:
            registration = os.environ.get("ZEROHOP_REGISTRATION", "") or "auto"
        if host is None:
            host = os.environ.get("ZEROHOP_HOST", "")
        if host:
            _check_address(host)
        if timeout is None:
            timeout = _number_from_env("ZEROHOP_TIMEOUT", _DEFAULT_TIMEOUT)
        if spin is None:
            spin = _number_from_env("ZEROHOP_SPIN", _DEFAULT_SPIN)
        _check_seconds("timeout", timeout)
        _check_seconds("spin", spin)
        place = _place(metrics)
        wrong = _faults_text(faults)
        devices = os.environ.get("ZEROHOP_DEVICE", "") if device is None else joined(device)
        preferred, preference = (
            preferred_adapters(local_rank=local_rank) if not devices else ([], "")
        )
        from zerohop.observe import logs  # logging: a tenth of what `import zerohop` costs

        if _is_before_logging:
            logs.outlive_endpoints()
        logs.start()
        try:
            super().__init__(
                device=devices,
                name=name or "",
                timeout=timeout,
                spin=spin,
                host=host,
                registration=registration,
                knobs=chosen(knobs, defaults=_defaults_with(wrong)),
                nearest=nearest_rails(devices),
                preferred=preferred,
                preference=preference,
                faults=wrong,
            )
        except VerbsError as error:
            hint = interface_hint(devices)
            if not hint:
                raise
            raise reworded(error, f"{error}; {hint}") from None
        _open.add(self)
        if place is not None:
            self._expose(place)

    def _expose(self, place: Place) -> None:
        from zerohop.observe.exposure import expose  # http.server, which few need

        try:
            self._metrics_url, self._unexpose = expose(self, place)
        except OSError:
            self.close(0)
            raise

    @property
    def faults(self) -> Faults | None:
        """What goes wrong on purpose on its devices now; None: nothing."""
        from zerohop._endpoint.faults import Faults

        text = self._faults_text()
        return Faults.parse(text) if text else None

    def set_faults(self, faults: Faults | str | None) -> None:
        """Have these faults from now on, None: no more; on connections that are there, too, whose numbers begin anew.

        p2p stays as it is. Raises ValueError (wrong words, or a device that is no software HCA) and TypeError.
        """
        from zerohop._endpoint.faults import text_of

        self._put_faults("" if faults is None else text_of(faults))

    @property
    def metrics_url(self) -> str | None:
        """Where the counters are served, "http://127.0.0.1:9400/metrics"; None: on no port, or no longer."""
        return None if self.closed else self._metrics_url

    def close(self, timeout: Seconds | None = None) -> None:
        if self._unexpose is not None:
            self._unexpose()
        super().close(timeout)

    close.__doc__ = _core.Endpoint.close.__doc__

    def connect(self, address: bytes, timeout: Seconds | None = None) -> _core.Peer:
        # In Python: even a misspelled keyword then shows no argument. The address holds a secret.
        return super().connect(address, timeout)

    connect.__doc__ = _core.Endpoint.connect.__doc__

    def __enter__(self) -> Self:
        self.peek_notify(0)  # raises if it is closed, or was made before a fork
        return self

    def __exit__(
        self,
        exc_type: type[BaseException] | None,
        exc: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.close()

    async def __aenter__(self) -> Self:
        return self.__enter__()

    async def __aexit__(
        self,
        exc_type: type[BaseException] | None,
        exc: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        import asyncio  # half of what `import zerohop` would cost

        await asyncio.to_thread(self.close)

    def __repr__(self) -> str:
        try:
            state = ", closed" if self.closed else ""
        except TypeError:  # a traceback shows its variables: no error may come in its place
            return "<zerohop.Endpoint, never made>"
        return f"<zerohop.Endpoint '{self.name}' on {self.device}{state}>"


def _place(metrics: str | int | None) -> Place | None:
    if metrics is None and not os.environ.get("ZEROHOP_METRICS", ""):
        return None
    from zerohop.observe.exposure import place_of

    if metrics is None:
        return place_of(os.environ.get("ZEROHOP_METRICS", ""), "ZEROHOP_METRICS")
    return place_of(metrics)


def _faults_text(faults: Faults | str | None) -> str:
    if faults is None and not os.environ.get("ZEROHOP_FAULTS", ""):
        return ""
    from zerohop._endpoint.faults import text_of

    return text_of(faults)


def _defaults_with(faults: str) -> dict[str, int]:
    """p2p would go past what goes wrong."""
    if not faults:
        return {}
    from zerohop._endpoint.faults import goes_wrong

    return {"p2p": 0} if goes_wrong(faults) else {}


def _knob_table() -> str:
    rows = (
        f"        {knob.name}: {knob.meaning}. {knob.allowed_text.capitalize()}."
        f" Default: ``${knob.variable}``, else {knob.default}."
        for knob in KNOBS
    )
    return "\n\n    Knobs:\n" + "\n".join(rows) + "\n    "


if Endpoint.__doc__ is not None:  # python -OO drops it
    Endpoint.__doc__ = Endpoint.__doc__.rstrip() + _knob_table()


@atexit.register
def _close_all() -> None:
    _core.announce_exit()
    # Before the interpreter and the C++ library take their globals down under a running thread. What is
    # on its way arrives, as with close().
    end = time.monotonic() + _EXIT_S
    try:
        for endpoint in list(_open):
            endpoint.close(timeout=max(0.0, end - time.monotonic()))
    finally:
        if "zerohop.observe.logs" in sys.modules:
            sys.modules["zerohop.observe.logs"].stop()
