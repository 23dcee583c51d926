"""The table of what was held, for how long, and how soon losses were seen."""

from __future__ import annotations

import json
import os
import platform
from collections.abc import Sequence
from datetime import datetime, timezone
from pathlib import Path
from typing import Any

Row = dict[str, Any]

HEAD = """# What it was put through

Made by `make endurance` on {dates} (UTC), {machine}. `results.json` beside this file has all figures, each with
its date.
"""
ABOUT = ("part", "date", "what", "route", "holds")  # of a row, beside its figures


def dated(row: Row) -> Row:
    return {**row, "date": datetime.now(timezone.utc).strftime("%Y-%m-%d %H:%M")}


def kept(folder: Path, parts: set[str]) -> list[Row]:
    """The rows that the folder has of other parts."""
    path = folder / "results.json"
    rows = json.loads(path.read_text())["rows"] if path.exists() else []
    return [row for row in rows if row["part"] not in parts]


def write(folder: Path, rows: Sequence[Row]) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    machine = f"{os.cpu_count()} CPUs, Linux {platform.release().split('-')[0]}, Python {platform.python_version()}"
    report = {"machine": machine, "rows": list(rows)}
    (folder / "results.json").write_text(json.dumps(report, indent=1) + "\n")
    dates = " and ".join(sorted({row["date"].split()[0] for row in rows}))
    text = HEAD.format(dates=dates, machine=machine)
    text += "\n## Faults on purpose, and what the calls said\n\n" + _faults(rows)
    text += "\n## Fuzzed, under AddressSanitizer and UndefinedBehaviorSanitizer\n\n" + _fuzzed(rows)
    text += "\n## Time until a loss is seen\n\n" + _detections(rows)
    text += "\n## Held at once, and for long\n\n" + _others(rows)
    (folder / "results.md").write_text(text)


def _detections(rows: Sequence[Row]) -> str:
    lines = [
        "| route | fault | operations | times | median | worst | within 5 s |",
        "|---|---|--:|--:|--:|--:|---|",
    ]
    found = [row for row in rows if row["what"] == "detection"]
    for route, fault in sorted({(row["route"], row["fault"]) for row in found}):
        some = [row for row in found if (row["route"], row["fault"]) == (route, fault)]
        medians = sorted(row["median_s"] for row in some)
        lines.append(
            f"| {route} | {fault} | {len(some)} | {sum(row['times'] for row in some)} "
            f"| {medians[len(medians) // 2]:.3f} s | {max(row['worst_s'] for row in some):.3f} s "
            f"| {_word(all(row['holds'] for row in some))} |"
        )
    return "\n".join(lines) + "\n"


def _faults(rows: Sequence[Row]) -> str:
    lines = [
        "| fault | operation | times | injected | outcomes | memory as told |",
        "|---|---|--:|--:|---|---|",
    ]
    for row in rows:
        if row["what"] == "faults":
            outcomes = ", ".join(f"{count} {name}" for name, count in row["outcomes"].items())
            lines.append(
                f"| {row['fault']} | {row['operation']} | {row['times']} | {row['injected']} "
                f"| {outcomes} | {_word(row['holds'])} {row['trouble']} |"
            )
    return "\n".join(lines) + "\n"


def _fuzzed(rows: Sequence[Row]) -> str:
    lines = ["| subject | inputs | seconds of a processor | no failure |", "|---|--:|--:|---|"]
    for row in rows:
        if row["what"] == "fuzzing":
            lines.append(
                f"| {row['subject']} | {row.get('inputs', '')} | {row.get('seconds', '')} | {_word(row['holds'])} |"
            )
    return "\n".join(lines) + "\n"


def _others(rows: Sequence[Row]) -> str:
    lines = ["| what | route | figures | holds |", "|---|---|---|---|"]
    for row in rows:
        if row["what"] in ("detection", "faults", "fuzzing"):
            continue
        figures = ", ".join(
            f"{key.replace('_', ' ')} {_shown(value)}"
            for key, value in row.items()
            if key not in ABOUT
        )
        lines.append(
            f"| {row['what']} | {row.get('route', 'soft0')} | {figures} | {_word(row['holds'])} |"
        )
    return "\n".join(lines) + "\n"


def _shown(value: Any) -> str:
    if isinstance(value, float):
        return f"{value:.4g}"
    if isinstance(value, dict):
        return "(" + ", ".join(f"{count:+d} {name}" for name, count in value.items()) + ")"
    return str(value)


def _word(holds: bool) -> str:
    return "yes" if holds else "**NO**"
