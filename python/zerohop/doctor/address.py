"""An endpoint's address as text: base64 on one line, what `zerohop doctor --listen` prints."""

from __future__ import annotations

import base64
import binascii
from pathlib import Path


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
