"""Amounts as people read them."""

from __future__ import annotations

__all__ = ["nbytes_text", "rate_text", "seconds_text"]


def nbytes_text(nbytes: int) -> str:
    """As 4000 B, 64.0 MiB."""
    value, unit = float(nbytes), "B"
    for larger in ("KiB", "MiB", "GiB", "TiB"):
        if value < 10000 if unit == "B" else value < 1000:
            break
        value, unit = value / 1024, larger
    return f"{nbytes} B" if unit == "B" else f"{value:.1f} {unit}"


def seconds_text(seconds: float) -> str:
    """As 850 ns, 12.3 ms."""
    for factor, unit in ((1e9, "ns"), (1e6, "µs"), (1e3, "ms")):
        if seconds * factor < 1000:
            return f"{seconds * factor:.3g} {unit}"
    return f"{seconds:.3g} s" if seconds < 1000 else f"{seconds:.0f} s"


def rate_text(nbytes: int, seconds: float) -> str:
    """As 12.3 GB/s; nothing where nothing was moved."""
    if nbytes == 0 or seconds <= 0:
        return ""
    per_second = nbytes / seconds
    for factor, unit in ((1e-9, "GB/s"), (1e-6, "MB/s")):
        if per_second * factor >= 1:
            return f"{per_second * factor:.3g} {unit}"
    return f"{per_second * 1e-3:.3g} kB/s"
