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

Made by `make endurance` {origin}. `results.json` beside this file has all figures, each with
its date.
"""
ABOUT = ("part", "date", "machine", "what", "route", "holds")  # of a row, beside its figures


def signed(row: Row) -> Row:
    """With when and where it was found."""
    date = datetime.now(timezone.utc).strftime("%Y-%m-%d %H:%M")
    return {**row, "date": date, "machine": _this_machine()}


def _this_machine() -> str:
    linux = platform.release().split("-")[0]
    return f"{os.cpu_count()} CPUs, Linux {linux}, Python {platform.python_version()}"


def kept(folder: Path, parts: set[str]) -> list[Row]:
    """The rows that the folder has of other parts."""
    path = folder / "results.json"
    rows: list[Row] = json.loads(path.read_text())["rows"] if path.exists() else []
    return [row for row in rows if row["part"] not in parts]


def write(folder: Path, rows: Sequence[Row]) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    lines = ",\n".join(json.dumps(row) for row in rows)  # one a row
    (folder / "results.json").write_text(f'{{"rows": [\n{lines}\n]}}\n')
    origins = _origins(rows)
    alike = len(set(origins.values())) == 1
    several = "in several runs: below each title stands when, and where"
    text = HEAD.format(origin=next(iter(origins.values())) if alike else several)
    for title, table, some in _sections(rows):
        text += f"\n## {title}\n\n" + ("" if alike else _told(_origins(some))) + table
    (folder / "results.md").write_text(text)


def _sections(rows: Sequence[Row]) -> list[tuple[str, str, list[Row]]]:
    """(title, table, the rows that it is of)"""
    by: dict[str, list[Row]] = {"faults": [], "fuzzing": [], "detection": [], "": []}
    for row in rows:
        by[row["what"] if row["what"] in by else ""].append(row)
    fuzzed = "Fuzzed, under AddressSanitizer and UndefinedBehaviorSanitizer"
    return [
        ("Faults on purpose, and what the calls said", _faults(rows), by["faults"]),
        (fuzzed, _fuzzed(rows), by["fuzzing"]),
        ("Time until a loss is seen", _detections(rows), by["detection"]),
        ("Held at once, and for long", _others(rows), by[""]),
    ]


def _origins(rows: Sequence[Row]) -> dict[str, str]:
    """When and where each part was run, which is always run as a whole."""
    found: dict[str, tuple[set[str], set[str]]] = {}
    for row in rows:
        days, machines = found.setdefault(row["part"], (set(), set()))
        days.add(row["date"].split()[0])
        machines.add(row["machine"])
    return {
        part: f"on {' and '.join(sorted(days))} (UTC), {' and '.join(sorted(machines))}"
        for part, (days, machines) in found.items()
    }


def _told(origins: dict[str, str]) -> str:
    if len(set(origins.values())) == 1:
        return f"Made {next(iter(origins.values()))}.\n\n"
    said = "; ".join(f"{part} {origin}" for part, origin in origins.items())
    return f"Made: {said}.\n\n" if said else ""


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
