"""Put the rows of one run of tests/gpu/run together with the machine's facts, as gpu.json and, to be kept, as gpu.md."""

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


PRINTING = ("registration", "memcheck", "contract", "calls", "group")  # logs with printed rows


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


def table(summary: dict[str, Any]) -> str:
    """In Markdown: a line a row, and of benchmarks a line a figure, with all contenders."""
    machine = summary["machine"]
    packages = ", ".join(f"{name} {version}" for name, version in machine["packages"].items())
    lines = [
        f"# `{summary['command']}`, {summary['date']}, status {summary['status']}",
        "",
        *(f"- {gpu}" for gpu in machine["gpus"]),
        f"- Linux {machine['kernel']}, {machine['cpus']} CPUs, Python {machine['python']}, {packages}",
        "",
        "| test | of | figures |",
        "|---|---|---|",
    ]
    of_benchmarks: dict[tuple[str, ...], dict[str, Any]] = {}
    for row in summary["rows"]:
        if "impl" in row:
            if row["metric"] not in ("p90", "p99", "mean"):  # the median tells enough
                names = ("suite", "metric", "unit", "nbytes", "memory")
                of = "; ".join(f"{name} {row[name]}" for name in names)
                of_benchmarks.setdefault((row["test"], of), {})[row["impl"]] = row["value"]
            continue
        given = {name: value for name, value in row.items() if name != "test"}
        figures = {name: each for name, each in given.items() if _is_figure(name, each)}
        others = {name: each for name, each in given.items() if name not in figures}
        lines.append(_line(row["test"], _cell(others), _cell(figures)))
    lines += [_line(*key, _cell(figures)) for key, figures in of_benchmarks.items()]
    return "\n".join(lines) + "\n"


def _line(*cells: str) -> str:
    return "| " + " | ".join(cell.replace("|", "/") for cell in cells) + " |"


def _cell(values: dict[str, Any]) -> str:
    return "; ".join(f"{name} {_shown(each)}" for name, each in values.items())


def _is_figure(name: str, value: object) -> bool:
    return isinstance(value, (int, float)) and name not in ("nbytes", "count", "block", "rounds")


def _shown(value: object) -> str:
    if isinstance(value, float):
        return f"{value:.4g}"
    return value if isinstance(value, str) else json.dumps(value)


def main(results: Path, rows: Path, command: str, status: str) -> None:
    """rows: a folder, with a file of them for each run of pytest."""
    found = [row for file in sorted(rows.glob("*.json")) for row in json.loads(file.read_text())]
    for name in PRINTING:
        found += printed_rows(results / f"{name}.log")
    for suite in ("p2p", "gpu_collectives", "train", "gda", "registration"):
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
    (results / "gpu.md").write_text(table(summary))
    print(text)


if __name__ == "__main__":
    main(Path(sys.argv[1]), Path(sys.argv[2]), sys.argv[3], sys.argv[4])
