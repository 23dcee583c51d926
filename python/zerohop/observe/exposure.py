"""The counters of this process over HTTP, for Prometheus and `zerohop top`: off unless an Endpoint asks for it.

Whatever is asked for, a socket in a folder that is the user's alone tells of all Endpoints that asked; with a port, so does
that port. A client has 10 seconds, and of more than eight at a time the oldest is put out: those that are idle hold no
other up.
"""

from __future__ import annotations

import errno
import ipaddress
import logging
import os
import secrets
import socket
import socketserver
import sys
import threading
import time
import weakref
from contextlib import suppress
from dataclasses import dataclass
from http.server import BaseHTTPRequestHandler
from pathlib import Path
from typing import Any

from zerohop import _core
from zerohop.observe.metrics import CONTENT_TYPE, prometheus
from zerohop.observe.runtime_folder import own_folder

_CLIENT_S = 10.0  # of one client, from its connection to the end of its answer
_CLIENTS = 8  # at a time
_LOOK_S = 1.0  # between two looks for clients that are too slow
_END_S = 2.0  # that the thread of a server is given to end
_MOST_PORT = 65535
_LONGEST_PATH = 107  # bytes of a Unix socket's: man 7 unix
_WHAT = (
    "'local', a port (9400), ports of which the first that is free is taken ('9400-9415'), or those with an "
    "address of this host in front ('0.0.0.0:9400')"
)


@dataclass(frozen=True)
class Place:
    """host, ports: where to listen, on the first of them that is free; no ports: on the local socket alone."""

    host: str = "127.0.0.1"
    ports: range = range(0)


LOCAL = Place()


def place_of(value: object, source: str = "metrics") -> Place | None:
    """What `Endpoint(metrics=)` means; None: nothing is asked for. Raises TypeError, ValueError."""
    if value is None or value is False or value == "":
        return None
    if isinstance(value, bool) or not isinstance(value, (int, str)):
        raise TypeError(f"{source} must be {_WHAT}, not {type(value).__name__}")
    if value == "local":
        return LOCAL
    host, _, ports = str(value).rpartition(":")
    first, dash, last = ports.partition("-")
    bare = host.removeprefix("[").removesuffix("]")
    try:
        chosen = range(int(first), int(last if dash else first) + 1)
        if bare:
            ipaddress.ip_address(bare)
    except ValueError:
        chosen = range(0)
    if not chosen or chosen[0] < 0 or chosen[-1] > _MOST_PORT:
        raise ValueError(f"{source} must be {_WHAT}, not {value!r}")
    return Place(bare or LOCAL.host, chosen)


class _Handler(BaseHTTPRequestHandler):
    timeout = _CLIENT_S
    server_version = "zerohop"
    sys_version = ""

    def do_GET(self) -> None:
        if self.path.partition("?")[0] not in ("/metrics", "/"):
            return self.send_error(404, explain="the counters are at /metrics")
        assert isinstance(self.server, _Server)
        text = self.server.text().encode()
        self.send_response(200)
        self.send_header("Content-Type", CONTENT_TYPE)
        self.send_header("Content-Length", str(len(text)))
        self.end_headers()
        self.wfile.write(text)
        return None

    def log_message(self, format: str, *args: Any) -> None:
        return  # a scrape every few seconds is no news


class _Server(socketserver.ThreadingMixIn, socketserver.TCPServer):
    """Also of Unix sockets: TCPServer minds the family only where it makes the socket."""

    daemon_threads = True
    block_on_close = False
    allow_reuse_address = True
    request_queue_size = 2 * _CLIENTS  # that wait to be accepted
    timeout = _LOOK_S

    def __init__(self, family: socket.AddressFamily, address: Any) -> None:
        self.address_family = family
        self.endpoints: dict[str, weakref.ref[_core.Endpoint]] = {}  # by id
        self._clients: dict[Any, float] = {}  # until when
        self._closing = threading.Event()
        super().__init__(address, _Handler)
        self._thread = threading.Thread(target=self._serve, name="zerohop-metrics", daemon=True)
        self._thread.start()

    def text(self) -> str:
        found = [each() for each in list(self.endpoints.values())]  # other threads change it
        alive = [endpoint for endpoint in found if endpoint is not None]
        return prometheus(*sorted(alive, key=lambda endpoint: endpoint.id))

    def _serve(self) -> None:
        while not self._closing.is_set():
            self.handle_request()
            now = time.monotonic()
            for client, until in list(self._clients.items()):
                if now > until:
                    _shut(client)

    def get_request(self) -> Any:
        try:
            return super().get_request()
        except OSError:  # no descriptor is left, say: the client waits, and so does this thread
            self._closing.wait(0.1)
            raise

    def process_request(self, request: Any, client_address: Any) -> None:
        for oldest in list(self._clients)[: 1 - _CLIENTS]:  # which leaves room for this one
            self._clients.pop(oldest, None)
            _shut(oldest)
        self._clients[request] = time.monotonic() + _CLIENT_S
        super().process_request(request, client_address)

    def shutdown_request(self, request: Any) -> None:
        self._clients.pop(request, None)
        super().shutdown_request(request)

    def handle_error(self, request: Any, client_address: Any) -> None:
        error = sys.exc_info()[1]
        logging.getLogger("zerohop.metrics").debug("a client was not served: %r", error)

    def close(self) -> None:
        self._closing.set()
        _shut(self.socket)  # which wakes the thread
        if threading.current_thread() is not self._thread:
            self._thread.join(_END_S)
        self.server_close()
        for client in list(self._clients):
            _shut(client)
        if self.address_family == socket.AF_UNIX:
            with suppress(OSError):
                os.unlink(self.server_address)  # type: ignore[arg-type]

    def forget(self) -> None:
        """In a child made by fork(), where there is no thread: the sockets are the parent's."""
        for shared in (self.socket, *self._clients):
            shared.close()


def _shut(connection: socket.socket) -> None:
    with suppress(OSError):
        connection.shutdown(socket.SHUT_RDWR)


_lock = (
    threading.RLock()
)  # around the following; a collection of garbage may call _leave() anywhere
_servers: dict[Place, _Server] = {}


def expose(endpoint: _core.Endpoint, place: Place) -> tuple[str | None, weakref.finalize[Any, Any]]:
    """Serve the counters of an Endpoint: its address (None: the local socket alone), and what ends that.

    Raises OSError.
    """
    places = {LOCAL, place}
    ended = weakref.finalize(endpoint, _leave, os.getpid(), places, endpoint.id)
    try:
        with _lock:
            for each in places:
                _join(endpoint, each)
    except OSError:
        ended()
        raise
    if place == LOCAL:
        return None, ended
    port: Any = _servers[place].server_address[1]
    host = f"[{place.host}]" if ":" in place.host else place.host
    return f"http://{host}:{port}/metrics", ended


def _join(endpoint: _core.Endpoint, place: Place) -> None:
    known = _servers.get(place)
    if known is not None:
        known.endpoints[endpoint.id] = weakref.ref(endpoint)
        if _servers.get(place) is known:  # not ended by the garbage before it
            return
    made = _local() if place == LOCAL else _on_port(place)
    made.endpoints[endpoint.id] = weakref.ref(endpoint)
    _servers[place] = made


def _leave(process: int, places: set[Place], endpoint_id: str) -> None:
    if process != os.getpid():
        return
    unused = []
    with _lock:
        for place in places:
            server = _servers.get(place)
            if server is None:
                continue
            server.endpoints.pop(endpoint_id, None)
            if not server.endpoints and _servers.pop(place, None) is not None:
                unused.append(server)
    for server in unused:
        server.close()


def _local() -> _Server:
    path = Path(own_folder(), f"{os.getpid()}-{secrets.token_hex(4)}.sock")
    if len(os.fsencode(path)) > _LONGEST_PATH:
        raise OSError(
            errno.ENAMETOOLONG,
            f"the socket of the counters has too long a path, {str(path)!r}: set XDG_RUNTIME_DIR to a short one",
        )
    return _Server(socket.AF_UNIX, str(path))


def _on_port(place: Place) -> _Server:
    family = socket.AF_INET6 if ":" in place.host else socket.AF_INET
    for port in place.ports:
        try:
            return _Server(family, (place.host, port))
        except OSError as error:
            failure = error
            if error.errno not in (errno.EADDRINUSE, errno.EACCES):
                break
    ports = str(place.ports[0]) + (f"-{place.ports[-1]}" if len(place.ports) > 1 else "")
    raise OSError(
        failure.errno,
        f"the counters cannot be served on {place.host}, port {ports} ({failure.strerror}): give metrics= (or "
        "ZEROHOP_METRICS) more ports, '9400-9415' for 16 processes of a host, or 0 for any that is free",
    )


def _forget() -> None:
    global _lock
    _lock = threading.RLock()
    for server in _servers.values():
        server.forget()
    _servers.clear()


os.register_at_fork(after_in_child=_forget)
