"""The connection between the two ends of a verification: plain values over TCP, proved by a secret.

Each end shows that it has the secret, and each message carries a code over its content and number (HMAC-SHA256). Nothing is
encrypted, because nothing is secret: queue pair numbers and keys of test memory are in every RDMA packet as well. Messages
are JSON; nothing is unpickled.
"""

from __future__ import annotations

import hmac
import json
import secrets
import socket
import struct
import time
from typing import Any

from zerohop.errors import AuthenticationError, PeerLost, ProtocolError, TransferTimeout

MAGIC = b"zhva"  # the start of an address: MAGIC, the secret, "host:port"
SECRET_NBYTES = 16
NONCE_NBYTES = 16
CODE_NBYTES = 32
MOST_NBYTES = 1 << 20  # of a message
HELLO_S = 5.0  # for a new connection to prove that it knows the secret


def make_address(secret: bytes, host: str, port: int) -> bytes:
    return MAGIC + secret + f"{host}:{port}".encode()


def split_address(address: bytes) -> tuple[bytes, str, int]:
    """Raises ValueError."""
    secret, place = address[len(MAGIC) :][:SECRET_NBYTES], address[len(MAGIC) + SECRET_NBYTES :]
    host, _, port = place.decode("ascii", "replace").rpartition(":")
    if not address.startswith(MAGIC) or not host or not port.isdecimal():
        raise ValueError("this is not an address of zerohop verify --adapter --listen")
    return secret, host, int(port)


class Channel:
    """key: of both ends. sends: "near" or "far", which of them this is. It owns the connection."""

    def __init__(self, connection: socket.socket, key: bytes, sends: str) -> None:
        self._connection = connection
        self._key = key
        self._sends = sends
        self._hears = "far" if sends == "near" else "near"
        self._sent = self._heard = 0

    def send(self, value: Any, seconds: float = HELLO_S) -> None:
        """Raises PeerLost."""
        body = json.dumps(value).encode()
        self._connection.settimeout(seconds)
        code = self._code(self._sends, self._sent, body)
        self._sent += 1
        try:
            self._connection.sendall(struct.pack("!I", len(body)) + code + body)
        except OSError as error:
            raise PeerLost(f"the other end is gone: {error}") from None

    def receive(self, seconds: float | None) -> Any:
        """The next value. Raises TransferTimeout, PeerLost, AuthenticationError, ProtocolError."""
        until = None if seconds is None else time.monotonic() + seconds
        head = _take(self._connection, 4 + CODE_NBYTES, until)
        (nbytes,) = struct.unpack("!I", head[:4])
        if nbytes > MOST_NBYTES:
            raise ProtocolError(f"a message of {nbytes} bytes came, of at most {MOST_NBYTES}")
        body = _take(self._connection, nbytes, until)
        if not hmac.compare_digest(head[4:], self._code(self._hears, self._heard, body)):
            raise AuthenticationError("the other end has another secret: give the newest address")
        self._heard += 1
        return json.loads(body)

    def close(self) -> None:
        self._connection.close()

    def _code(self, who: str, number: int, body: bytes) -> bytes:
        return hmac.digest(self._key, f"{who} {number} ".encode() + body, "sha256")


def accept(connection: socket.socket, secret: bytes) -> Channel:
    """The far end of a connection that has proved itself, in HELLO_S seconds at most. Raises zh.Error, OSError."""
    channel = Channel(connection, _agree(connection, secret, first=False), "far")
    channel.receive(HELLO_S)
    channel.send("far")
    return channel


def dial(address: bytes) -> Channel:
    """Raises PeerLost if nobody answers there, and what Channel.receive raises."""
    secret, host, port = split_address(address)
    try:
        connection = socket.create_connection((host.strip("[]"), port), HELLO_S)
    except OSError as error:
        raise PeerLost(
            f"nobody answers at {host}:{port}: {error}; is --listen still running there, and may a firewall "
            "refuse the port?"
        ) from None
    try:
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        channel = Channel(connection, _agree(connection, secret, first=True), "near")
        channel.send("near")
        channel.receive(HELLO_S)
    except BaseException:
        connection.close()
        raise
    return channel


def _agree(connection: socket.socket, secret: bytes, first: bool) -> bytes:
    """A key for this connection alone, so that no message of another one is taken for one of this."""
    mine = secrets.token_bytes(NONCE_NBYTES)
    connection.settimeout(HELLO_S)
    connection.sendall(mine)
    theirs = _take(connection, NONCE_NBYTES, time.monotonic() + HELLO_S)
    nonces = mine + theirs if first else theirs + mine
    return hmac.digest(secret, nonces, "sha256")


def _take(connection: socket.socket, nbytes: int, until: float | None) -> bytes:
    found = b""
    while len(found) < nbytes:
        left = None if until is None else until - time.monotonic()
        if left is not None and left <= 0:
            raise TransferTimeout("the other end did not answer in time")
        connection.settimeout(left)
        try:
            part = connection.recv(nbytes - len(found))
        except TimeoutError:
            continue
        except OSError as error:
            raise PeerLost(f"the other end is gone: {error}") from None
        if not part:
            raise PeerLost("the other end is gone: it has closed the connection")
        found += part
    return found
