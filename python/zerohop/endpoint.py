"""The Endpoint: the parts that are Python's, namely defaults, environment, context managers."""

from __future__ import annotations

import atexit
import ipaddress
import os
import sys
import time
import weakref
from typing import TYPE_CHECKING, SupportsFloat

from zerohop import _core
from zerohop._endpoint.knobs import KNOBS, Knobs, chosen, warn_of_misspelt
from zerohop._endpoint.numbers import seconds, whole
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
_EXIT_S = 5.0  # for transfers in flight when the interpreter exits

_open: weakref.WeakSet[Endpoint] = weakref.WeakSet()
# Then our exit handler runs after that of logging.
_is_before_logging = "logging" not in sys.modules


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
            f"name must be printable text of at most {_LONGEST_NAME} bytes, because peers show it: "
            f"not {name[:40]!r} ({len(name.encode())} bytes)"
        )


def _check_address(host: str) -> None:
    try:
        ipaddress.ip_address(host)
    except ValueError:
        raise ValueError(
            f"host must be an IPv4 or IPv6 address of this machine, such as '127.0.0.1', not {host!r}: "
            "`getent ahosts NAME` lists those of a name"
        ) from None


class Endpoint(_core.Endpoint):
    """This process's end of its connections: device, registered memory, notification board, peers.

    Args:
        device: a verbs device: ``"soft0"`` (the software HCA on loopback), ``"soft0@eth0"`` or
            ``"soft0@10.0.0.5"`` (on another interface), or an RDMA adapter such as ``"mlx5_0"``.
            Several (rails), ``"mlx5_0,mlx5_1"`` or ``["mlx5_0", "mlx5_1"]``, 8 at most: device i connects to
            device i of the peer, as far as both have them. Transfers of more than ``stripe_bytes`` are split
            into one share for each; smaller ones take the device nearest to the local memory. When a device
            fails, its pending transfers fail, later ones take the others, and it is retried every
            second; ``peer.stats()["rails"]`` shows it. Control connections take the network of the first
            (or ``$ZEROHOP_HOST``): the Peer lives as long as that connection does.
            Default: ``$ZEROHOP_DEVICE``, else a usable adapter, of several the nearest to
            the GPU of this rank, ``zerohop.local_gpu(local_rank)``, if there is one, else the first; else ``"soft0"``; never several.
        timeout: bound in seconds of every wait without its own. With 0 a wait checks once and
            raises TransferTimeout unless everything is there already; connecting then never succeeds.
            Default: ``$ZEROHOP_TIMEOUT``, else 30.
        name: shown in messages; printable, at most 1024 bytes. Default: ``"<host>:<pid>"``.
        spin: how long a wait polls before it sleeps, in seconds of its thread's CPU time; longer costs
            CPU time, shorter costs latency. A wait yields while it polls (sched_yield(2)), and sleeps
            after 20e-6 if another program computes on its core. Default: ``$ZEROHOP_SPIN``, else 200e-6.
        host: address of this host on which to listen for control connections: an IPv4 or IPv6 literal,
            not a name.
            Default: ``$ZEROHOP_HOST``, else the address of the device.
        local_rank: number of this process on its host, for the choice of the device. Default: ``$ZEROHOP_LOCAL_RANK``,
            else the one that torchrun, mpirun or srun sets, else 0.
        registration: how GPU memory is registered unless the call names another way: ``"auto"``,
            ``"dmabuf"``, ``"peermem"`` or ``"staged"``, as ``register()`` explains. Applies to ``register()``
            and ``empty()``, and to unregistered GPU arrays in transfers and messages.
            Default: ``$ZEROHOP_REGISTRATION``, else ``"auto"``.
        metrics: where to serve the counters over HTTP, in the format of ``zh.prometheus``: ``"local"`` (a socket
            for this user only, where ``zerohop top`` finds them), or in addition a port: ``9400``, ``"9400-9415"`` (the
            first that is free, for several processes of one host), ``0`` (any), on 127.0.0.1 unless the text begins with another
            address of this host, ``"0.0.0.0:9400"``. Everyone who reaches the port can read it: at least all users of
            this host.
            Endpoints of one process share it. ``metrics_url`` has the URL. Default: ``$ZEROHOP_METRICS``, else nowhere.
        faults: faults to inject on the software HCA, for tests: a ``Faults``, or its text form. Default:
            ``$ZEROHOP_FAULTS``, else none. With faults ``p2p`` is 0 unless it is given, because p2p has no faults.
        knobs: numbers that tune the device and its queue pairs, listed below. The values in effect
            are in ``peer.route(...).settings``, as are those of the keywords above.

    Closed by ``close()``, by ``with`` and ``async with``, and at exit.

    Raises:
        VerbsError: no such device, or it refuses (the message lists the devices), or it cannot
            serve (no active port, no GID of the kind). An iWARP device, which lacks
            atomics, is chosen only where no other adapter serves; both ends need one.
        OSError: ``metrics`` cannot be served as requested.
        TypeError, ValueError: a knob that does not exist or is out of range, or an invalid value.
    """

    _metrics_url: str | None = None
    _unexpose: Callable[[], object] | None = None  # stops serving the metrics

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
        seconds(timeout, "timeout")
        seconds(spin, "spin")
        place = _place(metrics)
        wrong = _faults_text(faults)
        devices = os.environ.get("ZEROHOP_DEVICE", "") if device is None else joined(device)
        preferred, preference = (
            preferred_adapters(local_rank=local_rank) if not devices else ([], "")
        )
        from zerohop.observe import logs  # logging: a tenth of the cost of `import zerohop`

        if _is_before_logging:
            logs.outlive_endpoints()
        logs.start()
        values = chosen(knobs, defaults=_defaults_with(wrong))
        self._copies = values["p2p"] == 1 and values["integrity"] == 0
        try:
            super().__init__(
                device=devices,
                name=name or "",
                timeout=timeout,
                spin=spin,
                host=host,
                registration=registration,
                knobs=values,
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

    @property
    def copies(self) -> bool:
        """Whether memory is copied between it and like Endpoints of this host without a device, and without checks."""
        return self._copies

    def _expose(self, place: Place) -> None:
        from zerohop.observe.exposure import expose  # http.server, which few programs need

        try:
            self._metrics_url, self._unexpose = expose(self, place)
        except OSError:
            self.close(0)
            raise

    @property
    def faults(self) -> Faults | None:
        """The faults that its devices inject now; None: no faults."""
        from zerohop._endpoint.faults import Faults

        text = self._faults_text()
        return Faults.parse(text) if text else None

    def set_faults(self, faults: Faults | str | None) -> None:
        """Inject these faults from now on (None: none), also on open connections, where the numbering of requests starts again.

        p2p stays as it is. Raises ValueError (invalid text, or a device other than the software HCA) and TypeError.
        """
        from zerohop._endpoint.faults import text_of

        self._put_faults("" if faults is None else text_of(faults))

    @property
    def metrics_url(self) -> str | None:
        """Where the counters are served, "http://127.0.0.1:9400/metrics"; None: on no port."""
        return None if self.closed else self._metrics_url

    def close(self, timeout: Seconds | None = None) -> None:
        if self._unexpose is not None:
            self._unexpose()
        super().close(timeout)

    close.__doc__ = _core.Endpoint.close.__doc__

    def connect(self, address: bytes, timeout: Seconds | None = None) -> _core.Peer:
        # In Python, so that an error for a misspelled keyword shows no argument: the address holds a secret.
        return super().connect(address, timeout)

    connect.__doc__ = _core.Endpoint.connect.__doc__

    def __enter__(self) -> Self:
        self.peek_notify(0)  # raises if the Endpoint is closed or was made before a fork
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    async def __aenter__(self) -> Self:
        return self.__enter__()

    async def __aexit__(self, *_: object) -> None:
        import asyncio  # would cost half of `import zerohop`

        await asyncio.to_thread(self.close)

    def __repr__(self) -> str:
        try:
            state = ", closed" if self.closed else ""
        except TypeError:  # tracebacks show variables: do not raise there
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
    """p2p would bypass the faults."""
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
    # Before the interpreter and the C++ library destroy globals that our threads use. Transfers in flight
    # finish, as with close().
    end = time.monotonic() + _EXIT_S
    try:
        for endpoint in list(_open):
            endpoint.close(timeout=max(0.0, end - time.monotonic()))
    finally:
        if "zerohop.observe.logs" in sys.modules:
            sys.modules["zerohop.observe.logs"].stop()
