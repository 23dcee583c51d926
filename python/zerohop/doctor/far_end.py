"""The other end of `zerohop doctor` and `zerohop verify`: its address as text, its output, and a second process for it."""

from __future__ import annotations

import base64
import binascii
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from zerohop.endpoint import Endpoint
from zerohop.errors import TransferTimeout
from zerohop.local import Link, RankFailed, Ranks

START_S = 60.0  # for a second process, which imports numpy and may start CUDA
LOOK_S = 1.0
MAGIC = b"zhad"  # the start of every Endpoint.address
FORM = "it is the output of --listen at the other end, base64 or hex, or @FILE that contains it"


def checked(text: str, starts: tuple[bytes, ...] = (MAGIC,)) -> bytes:
    """As decode(), for user input. Raises ValueError also if the bytes are not an address: one that begins so.

    No message shows the text: it may hold a secret.
    """
    try:
        address = decode(text)
    except OSError as error:
        raise ValueError(f"{error.filename}: {error.strerror}; {FORM}") from None
    except ValueError:
        address = b""
    if not address.startswith(starts):
        raise ValueError(f"this is not an address: {FORM}")
    return address


def encode(address: bytes) -> str:
    return base64.b64encode(address).decode()


def decode(text: str) -> bytes:
    """Bytes of an address in hex or base64, or in a file named after an @ (either of those, or raw).

    Raises ValueError, OSError for a file that cannot be read.
    """
    if not text:
        raise ValueError("it is empty")
    if text.startswith("@"):
        content = Path(text[1:]).read_bytes()
        try:
            return decode(content.decode("ascii").strip())
        except ValueError:  # not text (UnicodeDecodeError): the address itself
            return content
    try:
        return bytes.fromhex(text)
    except ValueError:
        pass
    try:
        return base64.b64decode(text, validate=True)
    except binascii.Error:
        raise ValueError("it is neither hex nor base64, nor a file name after an @") from None


def greet(endpoint: Endpoint, lacks_gpu: str) -> None:
    """Prints the address, and to stderr which peers connect, until interrupted: serving needs no help from it.

    lacks_gpu: why it shares no GPU memory; "" if it does. Raises only KeyboardInterrupt.
    """
    print(encode(endpoint.address), flush=True)
    print(f"serving on {endpoint.device}", file=sys.stderr)
    if endpoint.device == "soft0":
        hint = "only processes of this host reach it; across hosts use --verbs soft0@INTERFACE"
        print(f"{hint}, on both", file=sys.stderr)
    if lacks_gpu:
        print(f"no GPU memory: {lacks_gpu}", file=sys.stderr)
    while True:
        try:
            peer = endpoint.accept(timeout=LOOK_S)
        except TransferTimeout:
            continue  # lets Ctrl-C in
        print(f"{peer.name} on {peer.host} connected", file=sys.stderr)


@contextmanager
def second_process(serve: Callable[..., None], *arguments: Any) -> Iterator[bytes]:
    """Runs serve(link, *arguments), which ends with stay(), in a second process; yields its address. Raises RankFailed."""
    with Ranks(serve, 1, *arguments, silence=START_S) as ranks:
        try:
            [address] = ranks.ask(None)
        except RankFailed as error:
            raise RankFailed(None, f"the second process did not start: {error}") from error
        yield address


def stay(link: Link, endpoint: Endpoint) -> None:
    """Sends the address to the first process, and serves as long as that lives."""
    link.order()
    link.answer(endpoint.address)
    link.order()  # waits for ever: none is sent
