"""What rank 0 found, as lines in OSU's format and as rows."""

from __future__ import annotations

from pathlib import Path

from zerohop import __version__
from zerohop.examples.figures import Measured, write_figures
from zerohop.examples.osu.plan import WINDOW
from zerohop.examples.osu.rank import Finding, Spec

__all__ = ["lines", "write_finding"]

_SIZE, _VALUE = 10, 18  # columns wide; two digits behind the point
_TITLES = {"latency": ("Latency", "Latency (us)"), "bw": ("Bandwidth", "Bandwidth (MB/s)")}
_SCALES = {"latency": 1e6, "bw": 1e-6}


def lines(spec: Spec, finding: Finding) -> list[str]:
    """What is no figure begins with #."""
    test = spec.plan.test
    title, column = _TITLES[test]
    scale = _SCALES[test]
    verdict = [f"# WRONG: {wrong}." for wrong in finding.wrong]
    return [
        f"# zerohop {title} Test v{__version__}",
        f"# Writes with notifications go {finding.route}.",
        f"{'# Size':<{_SIZE}}{column:>{_VALUE}}",
        *(f"{n:<{_SIZE}}{scale * value:>{_VALUE}.2f}" for n, value in finding.figures.items()),
        *(verdict or ["# Every byte that was looked at is what was sent, bit for bit."]),
    ]


def write_finding(path: Path, spec: Spec, finding: Finding) -> None:
    test = spec.plan.test
    metric, unit = {"latency": ("latency", "s"), "bw": ("rate", "B/s")}[test]
    cases = [
        Measured(
            f"{test} {nbytes}", finding.route, finding.device, nbytes, ((metric, value, unit),)
        )
        for nbytes, value in finding.figures.items()
    ]
    write_figures(path, "osu", cases, window=WINDOW)
