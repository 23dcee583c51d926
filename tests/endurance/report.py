"""The table of what was held, for how long, and how soon losses were seen."""

import json
import os
import platform
from collections.abc import Sequence
from datetime import datetime, timezone
from pathlib import Path
from typing import Any

Row = dict[str, Any]

HEAD = """# What it was put through

Made by `make endurance`, in one run or several. `results.json` beside this file has all figures, each with its date.
"""
ABOUT = ("part", "date", "machine", "what", "route", "holds")  # of a row, beside its figures


def signed(row: Row) -> Row:
    """With when and where it was found."""
    date = datetime.now(timezone.utc).strftime("%Y-%m-%d %H:%M")
    linux = platform.release().split("-")[0]
    machine = f"{os.cpu_count()} CPUs, Linux {linux}, Python {platform.python_version()}"
    return {**row, "date": date, "machine": machine}


def kept(folder: Path, parts: set[str]) -> list[Row]:
    """The rows that the folder has of other parts."""
    path = folder / "results.json"
    rows: list[Row] = json.loads(path.read_text())["rows"] if path.exists() else []
    return [row for row in rows if row["part"] not in parts]


def write(folder: Path, rows: Sequence[Row]) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    each = ",\n".join(json.dumps(row) for row in rows)  # a line a row
    (folder / "results.json").write_text(f'{{"rows": [\n{each}\n]}}\n')
    by: dict[str, list[Row]] = {"faults": [], "fuzzing": [], "detection": [], "": []}
    for row in rows:
        by[row["what"] if row["what"] in by else ""].append(row)
    text = HEAD
    for title, some, lines in (
        ("Faults on purpose, and what the calls said", by["faults"], map(_fault, by["faults"])),
        ("Fuzzed, under ASAN and UBSAN", by["fuzzing"], map(_fuzzed, by["fuzzing"])),
        ("Time until a loss is seen", by["detection"], _detections(by["detection"])),
        ("Held at once, and for long", by[""], map(_other, by[""])),
    ):
        days = " and ".join(sorted({row["date"].split()[0] for row in some}))
        machines = " and ".join(sorted({row["machine"] for row in some}))
        made = f"Made on {days} (UTC), {machines}.\n\n" if some else ""
        text += f"\n## {title}\n\n{made}{_table([*lines])}"
    (folder / "results.md").write_text(text)


def _table(rows: Sequence[Row]) -> str:
    """Of rows whose keys are the titles of the columns."""
    lines = [[*rows[0]], ["---"] * len(rows[0])] if rows else []
    lines += [[str(cell) for cell in row.values()] for row in rows]
    return "".join(f"| {' | '.join(line)} |\n" for line in lines)


def _word(row: Row) -> str:
    return "yes" if row["holds"] else "**NO**"


def _fault(row: Row) -> Row:
    outcomes = ", ".join(f"{count} {name}" for name, count in row["outcomes"].items())
    same = {name: row[name] for name in ("fault", "operation", "times", "injected")}
    return {**same, "outcomes": outcomes, "memory as reported": f"{_word(row)} {row['trouble']}"}


def _fuzzed(row: Row) -> Row:
    seconds = row.get("seconds", "")
    same = {"subject": row["subject"], "inputs": row.get("inputs", "")}
    return {**same, "seconds of a processor": seconds, "no failure": _word(row)}


def _detections(rows: Sequence[Row]) -> list[Row]:
    """One line for all operations by a route."""
    found = []
    for route, fault in sorted({(row["route"], row["fault"]) for row in rows}):
        some = [row for row in rows if (row["route"], row["fault"]) == (route, fault)]
        medians = sorted(row["median_s"] for row in some)
        line: Row = {"route": route, "fault": fault, "operations": len(some)}
        line["times"] = sum(row["times"] for row in some)
        line["median"] = f"{medians[len(medians) // 2]:.3f} s"
        line["worst"] = f"{max(row['worst_s'] for row in some):.3f} s"
        line["within 5 s"] = _word({"holds": all(row["holds"] for row in some)})
        found.append(line)
    return found


def _other(row: Row) -> Row:
    figures = (f"{key.replace('_', ' ')} {_shown(row[key])}" for key in row if key not in ABOUT)
    same = {"what": row["what"], "route": row.get("route", "soft0")}
    return {**same, "figures": ", ".join(figures), "holds": _word(row)}


def _shown(value: Any) -> str:
    if isinstance(value, float):
        return f"{value:.4g}"
    if isinstance(value, dict):
        return "(" + ", ".join(f"{count:+d} {name}" for name, count in value.items()) + ")"
    return str(value)
