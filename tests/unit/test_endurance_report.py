"""The table of `make endurance`: rows that it keeps from an earlier run keep their date and machine."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from endurance import report

HERE, THERE = "2 CPUs, Linux 6.18.44, Python 3.11.7", "64 CPUs, Linux 5.15.0, Python 3.12.1"


def rows(machine: str, day: str) -> list[dict[str, Any]]:
    of_all = {"route": "soft0", "holds": True, "date": f"{day} 10:00", "machine": machine}
    outcomes = {"trouble": "", "outcomes": {"done": 1}, "times": 1, "injected": 1}
    return [
        of_all
        | {"part": "faults", "what": "faults", "fault": "drop", "operation": "write"}
        | outcomes,
        of_all | {"part": "load", "what": "peers", "peers": 1000},
        of_all | {"part": "soak", "what": "soak", "minutes": 30},
    ]


def sections(folder: Path) -> dict[str, str]:
    """What stands below each title."""
    parts = (folder / "results.md").read_text().split("\n## ")
    return {title: text for title, _, text in (part.partition("\n\n") for part in parts)}


@pytest.mark.parametrize("old_form", [False, True], ids=["", "one machine for all"])
def test_rows_that_are_kept_keep_their_date_and_machine(tmp_path: Path, old_form: bool) -> None:
    before = rows(THERE, "2026-01-02")
    report.write(tmp_path, before)
    if old_form:
        bare = [{key: value for key, value in row.items() if key != "machine"} for row in before]
        content = {"machine": THERE, "rows": bare}
        (tmp_path / "results.json").write_text(json.dumps(content))
    kept = report.kept(tmp_path, {"soak"})
    assert kept == before[:2]
    report.write(tmp_path, [*kept, rows(HERE, "2026-03-04")[2]])
    found = sections(tmp_path)
    head = found["# What it was put through"]
    assert THERE not in head
    assert HERE not in head
    old, new = f"on 2026-01-02 (UTC), {THERE}", f"on 2026-03-04 (UTC), {HERE}"
    faults = found["Faults on purpose, and what the calls said"]
    assert faults.startswith(f"Made {old}.\n\n|")
    assert found["Held at once, and for long"].startswith(f"Made: load {old}; soak {new}.\n\n|")
