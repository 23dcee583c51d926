"""The counters of this process over HTTP, for Prometheus and `zerohop top`: off unless an Endpoint asks for it.

A socket in a folder of this user always serves all Endpoints that asked for it; a requested port serves them, too.
Each client has 10 seconds. If more than eight connect at a time, the oldest is disconnected, so idle clients block
nobody.
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

_CLIENT_S = 10.0  # for one client, from its connection to the end of the response
_CLIENTS = 8  # at a time
_LOOK_S = 1.0  # between two checks for clients that are too slow
_END_S = 2.0  # for the thread of a server to end
_MOST_PORT = 65535
_LONGEST_PATH = 107  # bytes in the path of a Unix socket: man 7 unix
_WHAT = (
    "'local', a port (9400), a range whose first free port is used ('9400-9415'), or these after an "
    "address of this host ('0.0.0.0:9400')"
)


@dataclass(frozen=True)
class Place:
    """host, ports: where to listen, on the first free port; no ports: only on the local socket."""

    host: str = "127.0.0.1"
    ports: range = range(0)


LOCAL = Place()


def place_of(value: object, source: str = "metrics") -> Place | None:
    """The place that `Endpoint(metrics=)` asks for; None: none. Raises TypeError, ValueError."""
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
        return  # do not log every scrape


class _Server(socketserver.ThreadingMixIn, socketserver.TCPServer):
    """Also serves Unix sockets: TCPServer uses the family only to make the socket."""

    daemon_threads = True
    block_on_close = False
    allow_reuse_address = True
    request_queue_size = 2 * _CLIENTS  # clients that wait to be accepted
    timeout = _LOOK_S

    def __init__(self, family: socket.AddressFamily, address: Any) -> None:
        self.address_family = family
        self.endpoints: dict[str, weakref.ref[_core.Endpoint]] = {}  # by id
        self._clients: dict[Any, float] = {}  # client: its deadline
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
        except OSError:  # for example no descriptor is left: the client and this thread wait
            self._closing.wait(0.1)
            raise

    def process_request(self, request: Any, client_address: Any) -> None:
        for oldest in list(self._clients)[: 1 - _CLIENTS]:  # leaves room for this one
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
        _shut(self.socket)  # wakes the thread
        if threading.current_thread() is not self._thread:
            self._thread.join(_END_S)
        self.server_close()
        for client in list(self._clients):
            _shut(client)
        if self.address_family == socket.AF_UNIX:
            with suppress(OSError):
                os.unlink(self.server_address)  # type: ignore[arg-type]

    def forget(self) -> None:
        """Called in a forked child, which has no thread: closes the parent's sockets."""
        for shared in (self.socket, *self._clients):
            shared.close()


def _shut(connection: socket.socket) -> None:
    with suppress(OSError):
        connection.shutdown(socket.SHUT_RDWR)


# Protects the following; the garbage collector may call _leave() anywhere.
_lock = threading.RLock()
_servers: dict[Place, _Server] = {}


def expose(endpoint: _core.Endpoint, place: Place) -> tuple[str | None, weakref.finalize[Any, Any]]:
    """Serve the counters of an Endpoint. Returns the URL (None: only the local socket), and a finalizer that ends it.

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
        if _servers.get(place) is known:  # unless the garbage collector has ended it
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
            f"the socket of the counters has a path that is too long, {str(path)!r}: set XDG_RUNTIME_DIR to a short one",
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
        "ZEROHOP_METRICS) more ports, '9400-9415' for 16 processes of a host, or 0 for any free one",
    )


def _forget() -> None:
    global _lock
    _lock = threading.RLock()
    for server in _servers.values():
        server.forget()
    _servers.clear()


os.register_at_fork(after_in_child=_forget)
