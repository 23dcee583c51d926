"""All of it, in one command: `make endurance` (ARGS="--minutes 30" for the long soak)."""

import argparse
import os
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from support.partner import Partners

from endurance import detection, fuzzing, injection, load, report, soak

PARTS = ("faults", "fuzzing", "detection", "load", "soak")


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument(
        "--minutes", type=float, default=30.0, help="of the soak, half on each route"
    )
    parser.add_argument(
        "--scale",
        type=float,
        default=1.0,
        help="of the load and the faults; below 1: a quick look",
    )
    parser.add_argument(
        "--fuzzing", type=int, default=600, metavar="SECONDS", help="of each subject"
    )
    parser.add_argument("--seed", type=int, default=int.from_bytes(os.urandom(4), "little"))
    parser.add_argument(
        "--parts",
        default=",".join(PARTS),
        help="which of %(default)s; what the table has of others stays",
    )
    parser.add_argument("--out", type=Path, default=Path(__file__).parent)
    chosen = parser.parse_args()
    os.environ["ZEROHOP_REGISTRATION"] = "auto"
    rows = report.kept(chosen.out, set(chosen.parts.split(",")))
    partners = Partners()
    try:
        for row in _rows(partners, chosen):
            print(row, flush=True)
            rows.append(report.signed(row))
    finally:
        partners.close()
    report.write(chosen.out, rows)
    broken = [row for row in rows if not row["holds"]]
    print(f"{len(rows)} rows in {chosen.out / 'results.md'}, {len(broken)} of which do not hold")
    return 1 if broken else 0


def _rows(partners: Partners, chosen: argparse.Namespace) -> Iterator[dict[str, Any]]:
    made = {
        "faults": lambda: injection.rows(partners, int(100 * chosen.scale), chosen.seed),
        "fuzzing": lambda: fuzzing.rows(chosen.fuzzing),
        "detection": lambda: detection.rows(partners, {"killed": 5, "stopped": 2}),
        "load": lambda: load.rows(partners, chosen.scale),
        "soak": lambda: soak.rows(partners, chosen.minutes * 30, chosen.seed),
    }
    parts = chosen.parts.split(",")
    if unknown := set(parts) - set(PARTS):
        raise SystemExit(
            f"no part is called {', '.join(sorted(unknown))}: there are {', '.join(PARTS)}"
        )
    for part in PARTS:
        if part in parts:
            for row in made[part]():
                yield {"part": part, **row}


if __name__ == "__main__":
    sys.exit(main())
