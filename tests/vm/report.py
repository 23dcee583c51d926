"""What a pytest run in a guest found, from its junit file."""

import xml.etree.ElementTree as ET
from dataclasses import dataclass


@dataclass(frozen=True)
class Result:
    """One test: file ("tests/contract/test_load.py"), name, "passed" | "failed" | "skipped"."""

    file: str
    name: str
    outcome: str
    seconds: float
    text: str  # traceback or reason


def parse_junit(text: str) -> list[Result]:
    results = []
    for case in ET.fromstring(text).iter("testcase"):
        file = case.get("classname", "").replace(".", "/") + ".py"
        outcome, words = "passed", []
        for child in case:
            if child.tag in ("failure", "error"):
                outcome = "failed"
                words.append(child.text or child.get("message") or "")
            elif child.tag == "skipped" and outcome == "passed":
                outcome = "skipped"
                words.append(child.get("message") or "")
        seconds = float(case.get("time", "0"))
        results.append(Result(file, case.get("name", ""), outcome, seconds, "\n".join(words)))
    return results


def readable(failures: list[Result]) -> str:
    """Each failed test with the end of its traceback."""
    parts = []
    for failure in failures:
        lines = failure.text.strip().splitlines()
        parts.append("\n".join([f"--- {failure.file}::{failure.name}", *lines[-40:]]))
    return "\n\n".join(parts)
