"""An endpoint's address as text: base64 on one line, what `zerohop doctor --listen` prints."""

from __future__ import annotations

import base64
import binascii
from pathlib import Path

MAGIC = b"zhad"  # that every Endpoint.address begins with
FORM = "it is what --listen printed at the other end, base64 or hex, or @FILE with that"


def checked(text: str) -> bytes:
    """As decode(), of what a user has typed. Raises ValueError also where the bytes are of something else.

    No message shows the text: it may hold a secret.
    """
    try:
        address = decode(text)
    except OSError as error:
        raise ValueError(f"{error.filename}: {error.strerror}; {FORM}") from None
    except ValueError:
        address = b""
    if not address.startswith(MAGIC):
        raise ValueError(f"this is no address: {FORM}")
    return address


def encode(address: bytes) -> str:
    return base64.b64encode(address).decode()


def decode(text: str) -> bytes:
    """Bytes of an address in hex or base64, or in the file behind an @ (either of those, or raw).

    Raises ValueError, OSError for a file that cannot be read.
    """
    if not text:
        raise ValueError("it is empty")
    if text.startswith("@"):
        content = Path(text[1:]).read_bytes()
        try:
            return decode(content.decode("ascii").strip())
        except ValueError:  # not text (UnicodeDecodeError is one): the address itself
            return content
    try:
        return bytes.fromhex(text)
    except ValueError:
        pass
    try:
        return base64.b64decode(text, validate=True)
    except binascii.Error:
        raise ValueError("it is neither hex nor base64, nor a file name behind an @") from None
