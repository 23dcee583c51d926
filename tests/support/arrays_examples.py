"""The examples of arrays and frameworks, and arguments with which they are short, or long."""

from __future__ import annotations

from click.testing import CliRunner, Result
from zerohop.examples.halo import program as halo
from zerohop.examples.jax_handoff import program as jax_handoff
from zerohop.examples.numpy_only import program as numpy_only
from zerohop.examples.weights import program as weights

MAINS = {
    "weights": weights.main,
    "halo": halo.main,
    "jax_handoff": jax_handoff.main,
    "numpy_only": numpy_only.main,
}
SMALL = {
    "weights": ["--layers=3", "--width=10", "--versions=7", "--device=cpu"],
    "halo": ["--rows=37", "--columns=11", "--steps=25", "--device=cpu"],
    "jax_handoff": ["--rows=20", "--columns=30", "--rounds=2", "--device=cpu"],
    "numpy_only": ["--count=100"],
}
RIGHT = {
    "weights": "Every version at {readers} readers is that of the reference, bit for bit.",
    "halo": "Every cell is that of the reference, bit for bit.",
    "jax_handoff": "Every element is that of the reference, bit for bit.",
    "numpy_only": "Every number is right.",
}


def invoke(name: str, *arguments: str) -> Result:
    return CliRunner().invoke(MAINS[name], [*SMALL[name], *arguments])


def said(done: Result) -> str:
    """Without the breaks of lines."""
    return " ".join(done.output.split())
