"""What calls cost, in instructions of the calling thread, as callgrind counts them: the same on any machine with the same programs.

`make instructions` prints them. The two Endpoints are of one process. A system call counts as one instruction.
A call that makes a Transfer drops it, too.
"""

import ctypes
import os
import re
import shlex
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterable
from pathlib import Path

ROUTES = ("p2p", "soft0")
TIMES = 64  # calls that are counted together
ROUNDS = 4  # of which the cheapest counts: in another, Python may have collected garbage
NOTHING = "nothing"
UNDER_WAY = 16  # at most: fewer than the send queue takes
_MARKS = """
#include <valgrind/callgrind.h>
void toggle(void) { CALLGRIND_TOGGLE_COLLECT; }
void dump(const char* name) { CALLGRIND_DUMP_STATS_AT(name); }
"""


def measure() -> dict[str, int]:
    """Instructions a call, by its name and route. Raises CalledProcessError."""
    with tempfile.TemporaryDirectory() as folder:
        marks = Path(folder, "marks.so")
        compiler = [*shlex.split(os.environ.get("CC", "cc")), "-shared", "-fPIC", "-xc", "-"]
        subprocess.run([*compiler, "-o", str(marks)], input=_MARKS, text=True, check=True)
        found = {}
        for route in ROUTES:
            out = Path(folder, route)
            tool = ["valgrind", "-q", "--tool=callgrind", "--collect-atstart=no"]
            program = [sys.executable, "-m", "support.instructions", str(marks), route]
            environment = {
                name: value for name, value in os.environ.items() if not name.startswith("ZEROHOP_")
            } | {"PYTHONHASHSEED": "0", "OPENBLAS_NUM_THREADS": "1"}
            subprocess.run(
                [*tool, f"--callgrind-out-file={out}", *program],
                env=environment,
                cwd=Path(__file__).parents[1],
                check=True,
            )
            found |= _read(Path(folder).glob(f"{route}.*"), route)
        return found


def _read(dumps: Iterable[Path], route: str) -> dict[str, int]:
    """Each dump of a call follows one of as many empty calls: what those cost is not the same all the time."""
    found: dict[str, int] = {}
    nothing = 0
    for dump in sorted(dumps, key=lambda dump: int(dump.suffix[1:])):
        text = dump.read_text()
        name = re.search(r"^desc: Trigger: Client Request: (.*)$", text, re.MULTILINE)
        total = re.search(r"^totals: (\d+)", text, re.MULTILINE)
        if not name or not total:
            continue
        if name[1] == NOTHING:
            nothing = int(total[1])
            continue
        each = round((int(total[1]) - nothing) / TIMES)
        found[f"{name[1]}, {route}"] = min(each, found.get(f"{name[1]}, {route}", each))
    return found


class _Counter:
    def __init__(self, marks: str) -> None:
        library = ctypes.CDLL(marks)
        self._toggle, self._dump = library.toggle, library.dump

    def count(
        self,
        name: str,
        call: Callable[..., object],
        *given: object,
        between: Callable[[], object] | None = None,
        every: int = 1,
    ) -> None:
        """between: so many calls; not counted."""
        toggle = self._toggle
        for _ in range(ROUNDS):
            for label, each, arguments in ((NOTHING, len, ((),)), (name, call, given)):
                for number in range(TIMES):
                    if between is not None and each is call and number % every == 0:
                        between()
                    toggle()
                    each(*arguments)
                    toggle()
                self._dump(label.encode())


def run(marks: str, route: str) -> None:
    import zerohop as zh

    count = _Counter(marks).count
    with (
        zh.Endpoint("soft0", p2p=route == "p2p") as ours,
        zh.Endpoint("soft0", p2p=route == "p2p") as theirs,
    ):
        peer = ours.connect(theirs.address)
        near, memory = ours.empty(8), theirs.empty(8)
        far = memory.remote

        def settle() -> None:
            peer.write(near, far, notify=(1, 1)).wait()
            theirs.wait_notify(1)

        for _ in range(TIMES):
            settle()
        ended = peer.write(near, far)
        ended.wait()
        count("write of 8 B", peer.write, near, far, between=settle, every=UNDER_WAY)
        count("notify", peer.notify, 1, 1, between=settle, every=UNDER_WAY)
        count("wait of a Transfer that is done", ended.wait)
        count(
            "wait_notify of a value that is there",
            theirs.wait_notify,
            2,
            between=lambda: theirs.notify(2, 1),
        )


def main() -> None:
    if len(sys.argv) > 1:
        return run(*sys.argv[1:])
    for name, each in measure().items():
        print(f"{each:8}  {name}")
    return None


if __name__ == "__main__":
    main()
