"""What arrives from outside, fuzzed by libFuzzer (`make fuzz`)."""

from __future__ import annotations

import re
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[2]
_TOLD = re.compile(r"fuzz_(\w+): (\d+) inputs in (\d+) s")


def rows(seconds: int) -> Iterator[dict[str, Any]]:
    """seconds: of each subject."""
    done = subprocess.run(
        [str(ROOT / ".ci" / "fuzz"), str(seconds)], capture_output=True, text=True, check=False
    )
    told = _TOLD.findall(done.stdout)
    for subject, inputs, lasted in told:
        yield {
            "what": "fuzzing",
            "subject": subject,
            "inputs": int(inputs),
            "seconds": int(lasted),
            "holds": True,
        }
    if done.returncode != 0:
        yield {"what": "fuzzing", "subject": "one", "trouble": done.stdout[-2000:], "holds": False}
