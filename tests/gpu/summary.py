"""Put the rows of one run of tests/gpu/run together with the machine's facts, as gpu.json."""

import json
import os
import platform
import subprocess
import sys
from contextlib import suppress
from datetime import datetime, timezone
from importlib import metadata
from pathlib import Path
from typing import Any


def machine() -> dict[str, Any]:
    query = "--query-gpu=name,driver_version,memory.total"
    smi = subprocess.run(
        ["nvidia-smi", query, "--format=csv,noheader"],
        check=False,
        capture_output=True,
        text=True,
        timeout=60,
    )
    versions = {}
    for name in ("torch", "cupy-cuda12x", "cupy-cuda13x", "jax", "numba-cuda", "numpy"):
        with suppress(metadata.PackageNotFoundError):
            versions[name] = metadata.version(name)
    return {
        "gpus": smi.stdout.splitlines(),
        "kernel": platform.release(),
        "cpus": os.cpu_count(),
        "python": platform.python_version(),
        "packages": versions,
    }


PRINTING = ("registration", "memcheck", "contract", "calls")  # logs with printed rows


def printed_rows(log: Path) -> list[dict[str, Any]]:
    """Lines that begin with ROW."""
    if not log.exists():
        return []
    lines = log.read_text().splitlines()
    return [json.loads(line.removeprefix("ROW ")) for line in lines if line.startswith("ROW ")]


def bench_rows(path: Path) -> list[dict[str, Any]]:
    """Of a `zerohop bench`, its header first."""
    found: list[dict[str, Any]] = json.loads(path.read_text()) if path.exists() else []
    return found


def main(results: Path, rows: Path, command: str, status: str) -> None:
    """rows: a folder, with a file of them for each run of pytest."""
    found = [row for file in sorted(rows.glob("*.json")) for row in json.loads(file.read_text())]
    for name in PRINTING:
        found += printed_rows(results / f"{name}.log")
    for suite in ("p2p", "gda", "registration"):
        found += bench_rows(results / f"{suite}.json")
    summary = {
        "command": command,
        "date": datetime.now(timezone.utc).strftime("%Y-%m-%d %H:%M UTC"),
        "status": int(status),
        "machine": machine(),
        "rows": found,
    }
    text = json.dumps(summary, indent=1)
    (results / "gpu.json").write_text(text + "\n")
    print(text)


if __name__ == "__main__":
    main(Path(sys.argv[1]), Path(sys.argv[2]), sys.argv[3], sys.argv[4])
