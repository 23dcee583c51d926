"""The processes that carry out programs: they are kept from one program to the next, until one of them fails."""

import sys
import tempfile
from pathlib import Path

from support.link import LinkClosed, LinkTimeout
from support.programs.model import Program, Step
from support.programs.rank import SIZE, TIMEOUT
from support.spawned import Worker

_READY = 60.0  # seconds to start and meet


class Crew:
    def __init__(self) -> None:
        self._directory: tempfile.TemporaryDirectory[str] | None = None
        self._ranks: list[Worker] = []

    def start(self) -> None:
        """Unless they are there."""
        if self._ranks:
            return
        self._directory = tempfile.TemporaryDirectory()
        Path(self._directory.name).chmod(0o700)
        module = "support.programs.rank"
        self._ranks = [Worker(module, self._directory.name, rank) for rank in range(SIZE)]
        for rank in self._ranks:
            rank.tell("ready")
        for rank in self._ranks:
            rank.answer(_READY)

    def close(self) -> None:
        for rank in self._ranks:
            rank.discard()
        self._ranks = []
        if self._directory is not None:
            self._directory.cleanup()
            self._directory = None

    def run(self, program: Program) -> None:
        """Raises AssertionError with what was wrong, and how to run the program again."""
        self.start()
        wrong, good = [], True
        for rank in self._ranks:
            rank.tell("run", program)
        for number, rank in enumerate(self._ranks):
            try:
                goes_on, said = rank.answer((len(program.steps) + 1) * TIMEOUT if good else 5.0)
            except (LinkClosed, LinkTimeout) as error:
                stacks = rank.stacks() if isinstance(error, LinkTimeout) else ""
                goes_on, said = False, [f"{error}\n{stacks}"]
            good = good and goes_on
            wrong += [f"process {number}, {each}" for each in said]
        if not good:
            self.close()
        again = f'cd tests; python -m support.programs.crew "{program!r}"'
        assert not wrong, "\n".join([*wrong, f"To run it again: {again}"])


def main() -> None:
    """Runs a program again, as often as the second argument says."""
    program: Program = eval(sys.argv[1], {"Program": Program, "Step": Step})
    crew = Crew()
    try:
        for _ in range(int(sys.argv[2]) if len(sys.argv) > 2 else 1):
            crew.run(program)
    finally:
        crew.close()
    print("as expected")


if __name__ == "__main__":
    main()
