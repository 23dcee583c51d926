"""What the README shows works as it is printed there."""

import re
import subprocess
import sys
from pathlib import Path


def test_first_exchange_runs(repository: Path) -> None:
    text = (repository / "README.md").read_text()
    [example] = re.findall(r"```python\n(.*?)```", text, re.DOTALL)
    command = [sys.executable, "-W", "error", "-c", example]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 0, done.stderr
    first, route = done.stdout.splitlines()
    assert first == "499500.0"
    assert "soft0" in route


def test_knobs_are_the_ones_that_the_code_reads(repository: Path) -> None:
    read = set()
    for folder, pattern in (("python", "*.py"), ("cpp", "*.cpp")):
        for path in (repository / folder).rglob(pattern):
            calls = r'(?:getenv|environ\.get|_from_env)\("(ZEROHOP_\w+)"'
            read |= set(re.findall(calls, path.read_text()))
    listed = re.findall(
        r"^\| `(ZEROHOP_\w+)`", (repository / "README.md").read_text(), re.MULTILINE
    )
    assert set(listed) == read
