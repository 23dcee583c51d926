"""Ranks of a World for the tests, as threads of this process or as processes of their own."""

import time
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import zerohop as zh
from zerohop.local import Link, Ranks

from support.attempt import Attempt
from support.link import DEFAULT_TIMEOUT
from support.patience import patient

TIMEOUT = patient(10.0)  # seconds; the default bound of every World made for a test


def _rank(
    rank: int,
    size: int,
    function: Callable[..., Any],
    directory: Path,
    device: str,
    args: tuple[Any, ...],
    options: dict[str, Any],
) -> Any:
    options = {"device": device, "timeout": TIMEOUT, **options}
    with zh.World(directory, rank, size, **options) as world:
        value = function(world, *args)
        world.barrier(DEFAULT_TIMEOUT)  # nobody leaves while another still needs it
        return value


def _in_process(link: Link, *arguments: Any) -> Any:
    return _rank(link.rank, link.size, *arguments)


class Job:
    """`job(function, size, *args)` runs function(world, *args) on every rank; returns what they returned."""

    def __init__(self, mode: str, directory: Path, device: str) -> None:
        self.mode, self.directory, self.device = mode, directory, device

    def __call__(
        self,
        function: Callable[..., Any],
        size: int,
        *args: Any,
        deadline: float = DEFAULT_TIMEOUT,
        **options: Any,
    ) -> list[Any]:
        arguments = (function, self.directory, self.device, args, options)
        if self.mode == "process":
            with Ranks(_in_process, size, *arguments, silence=patient(60)) as ranks:
                return ranks.results()
        return results([Attempt(_rank, rank, size, *arguments) for rank in range(size)], deadline)


def results(attempts: list[Attempt], deadline: float = DEFAULT_TIMEOUT) -> list[Any]:
    """What all returned. Of several failures the one that is not because of another rank's is raised."""
    values, errors = [], []
    end = time.monotonic() + deadline
    for attempt in attempts:
        try:
            values.append(attempt.value(max(0.1, end - time.monotonic())))
        except BaseException as error:  # noqa: BLE001  one of them is raised below
            errors.append(error)
    errors.sort(key=lambda error: isinstance(error, zh.Error))
    if errors:
        raise errors[0]
    return values


def worlds(job: Job, ranks: Iterable[int], size: int, **options: Any) -> list[zh.World]:
    """Those ranks of one World, all in this thread."""
    made = {"device": job.device, "timeout": TIMEOUT, **options}
    return [zh.World(job.directory, rank, size, **made) for rank in ranks]


def close(made: list[zh.World]) -> None:
    """All at once: each lets what is posted to the others finish."""
    results([Attempt(world.close) for world in made])
