"""What arrives from outside, fuzzed by libFuzzer (`make fuzz`)."""

import re
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[2]
_TOLD = re.compile(r"fuzz_(\w+): (\d+) inputs in (\d+) s of a processor")
_FOUND = re.compile(r"fuzz_(\w+) found something")


def rows(seconds: int) -> Iterator[dict[str, Any]]:
    """seconds: of a processor, for each subject."""
    done = subprocess.run(
        [str(ROOT / ".ci" / "fuzz"), str(seconds)], capture_output=True, text=True, check=False
    )
    reported = _TOLD.findall(done.stdout)
    for subject, inputs, lasted in reported:
        yield {
            "what": "fuzzing",
            "subject": subject,
            "inputs": int(inputs),
            "seconds": int(lasted),
            "holds": True,
        }
    failed = _FOUND.findall(done.stdout)
    if done.returncode != 0 and not failed:
        failed = ["not run"]  # it could not be built
    trouble = done.stdout[-4000:] + done.stderr[-1000:]
    for subject in failed:
        yield {"what": "fuzzing", "subject": subject, "trouble": trouble, "holds": False}
