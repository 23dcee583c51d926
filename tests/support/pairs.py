"""The examples of two ranks, and arguments with which they are short, or long."""

from __future__ import annotations

from click.testing import CliRunner, Result
from zerohop.examples.kv_cache import program as kv_cache
from zerohop.examples.osu import program as osu

MAINS = {"kv_cache": kv_cache.main, "osu": osu.main}
SMALL = {
    "kv_cache": ["--requests=20", "--layers=3", "--blocks=40", "--block-bytes=100"],
    "osu": ["-m", "1:300", "-i", "5"],
}
# So long that it is under way when the test does something to it.
LONG = {
    "kv_cache": ["--requests=100000000", "--layers=2", "--blocks=64", "--block-bytes=4096"],
    "osu": ["-m", "4096:65536", "-i", "100000000"],
}


def invoke(name: str, *arguments: str) -> Result:
    return CliRunner().invoke(MAINS[name], [*SMALL[name], "--device=cpu", *arguments])


def said(done: Result) -> str:
    """Without the breaks of lines."""
    return " ".join(done.output.split())
