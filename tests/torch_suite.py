"""PyTorch's own tests of its backends (distributed_test.py), run on a CPU: ``python tests/torch_suite.py -k 'test_all_*'``.

A developer runs it, after ``pip install expecttest``; it is not part of CI. PyTorch is not changed: where its tests ask for the
name of the backend, they meet one that is equal to "gloo", so zerohop has to do what gloo does. Exit code 1: a case fails that
passes with gloo and is not EXPECTED.
"""

import argparse
import fnmatch
import multiprocessing
import os
import re
import signal
import subprocess
import sys
import tempfile
import time
import unittest
from collections import Counter
from contextlib import suppress
from importlib import import_module
from multiprocessing.connection import Connection
from typing import Any
from unittest import mock

FORK: Any = multiprocessing.get_context("fork")  # new interpreters would import PyTorch for seconds
LIMIT = 60.0  # seconds of a case
ERROR = re.compile(r"^[\w.]+(?:Error|Exception|Lost|Timeout)\b: .+", re.MULTILINE)
MONITORED = "failure_order", "gloo", "gloo_rank_0_timeout", "gloo_subgroup", "wait_all_ranks"
WHY = "before 2.14 PyTorch allows monitored_barrier only for gloo"
EXPECTED = {f"test_monitored_barrier_{each}": WHY for each in MONITORED}  # cases that fail, and why


class LikeGloo(str):
    """The name of a backend that is also equal to "gloo", in sets too."""

    __slots__ = ()

    def __hash__(self) -> int:
        return hash("gloo")

    def __eq__(self, other: object) -> bool:
        return other in ("gloo", str(self))

    def __ne__(self, other: object) -> bool:
        return not self == other


def load(backend: str, ranks: int) -> type[unittest.TestCase]:
    """PyTorch's cases for that backend."""
    os.environ |= {"BACKEND": backend, "WORLD_SIZE": str(ranks), "OMP_NUM_THREADS": "1"}
    os.environ["INIT_METHOD"] = "file:///set before each case"
    os.environ["DISTRIBUTED_TESTS_DEFAULT_TIMEOUT"] = str(int(LIMIT) - 10)
    import_module("zerohop.torch")
    common: Any = import_module("torch.testing._internal.common_distributed")
    general: Any = import_module("torch.testing._internal.common_utils")
    common.DistTestCases.backend_feature["plugin"].add(backend)
    skip_if, decode = general.skip_but_pass_in_sandcastle_if, os.environ.decodevalue

    def name(value: bytes) -> str:
        return LikeGloo(backend) if decode(value) == backend else decode(value)

    def skip_but_all_to_all(condition: bool, reason: str) -> Any:
        """These cases are for MPI, but any backend with an all_to_all can pass them."""
        lifted = "MPI" in reason and "all_to_all" in reason
        return skip_if(condition and not lifted, reason)

    if ranks > 2:  # PyTorch skips below 8 the cases for which 3 are enough
        common.skip_if_small_worldsize = lambda function: function
    general.skip_but_pass_in_sandcastle_if = skip_but_all_to_all
    with mock.patch.object(os.environ, "decodevalue", name):
        module: Any = import_module("torch.testing._internal.distributed.distributed_test")
    module.default_pg_timeout = LIMIT / 2

    class Case(module.TestDistBackend, module.DistributedTest._DistTestBase):  # type: ignore[misc, name-defined]
        def setUp(self) -> None:
            super().setUp()
            module.INIT_METHOD = os.environ["INIT_METHOD"]
            self._start_processes(FORK.Process)

    return Case


def play(case: unittest.TestCase, log: str, answer: Connection) -> None:
    """Runs a case in this process and those of its ranks, and answers what became of it, and why."""
    os.setsid()
    with open(log, "w") as file:
        os.dup2(file.fileno(), 1)
        os.dup2(file.fileno(), 2)
    result = unittest.TestResult()
    unittest.TestSuite([case]).run(result)
    if result.skipped:
        answer.send(("skipped", result.skipped[0][1]))
    elif bad := result.errors + result.failures:
        text = bad[0][1]
        print(text)
        errors = [each for each in ERROR.findall(text) if "exited with error code" not in each]
        answer.send(("failed", (errors or text.splitlines()[-1:])[0]))
    else:
        answer.send(("passed", ""))


def outcome(case: unittest.TestCase, log: str) -> tuple[str, str]:
    near, far = FORK.Pipe(duplex=False)
    process = FORK.Process(target=play, args=(case, log, far))
    process.start()
    far.close()
    try:
        found: tuple[str, str] = near.recv() if near.poll(LIMIT) else ("failed", "no end in time")
    except EOFError:
        found = "failed", "its process ended"
    with suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)
    process.join()
    return found


def passes_with_gloo(name: str, ranks: int) -> bool:
    words = [sys.executable, __file__, "--backend", "gloo", "-k", name, "--ranks", str(ranks)]
    done = subprocess.run(words, stdout=subprocess.PIPE, text=True, check=False)
    return "1 passed" in done.stdout


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--backend", default="zerohop")
    parser.add_argument("-k", default="*", metavar="NAME", help="cases; may contain *")
    parser.add_argument("--ranks", type=int, default=2)
    args = parser.parse_args()
    logs, kind = tempfile.mkdtemp(prefix="torch_suite_"), load(args.backend, args.ranks)
    counts: Counter[str] = Counter()
    unexpected = []
    for name in fnmatch.filter(unittest.defaultTestLoader.getTestCaseNames(kind), args.k):
        began = time.monotonic()
        became, reason = outcome(kind(name), os.path.join(logs, f"{name}.log"))
        if became == "failed" and args.backend != "gloo":
            if name in EXPECTED:
                became, reason = "expected", EXPECTED[name]
            elif passes_with_gloo(name, args.ranks):
                unexpected.append(name)
        counts[became] += 1
        print(f"{became:8} {time.monotonic() - began:5.1f} s  {name}  {reason}", flush=True)
    print(", ".join(f"{count} {became}" for became, count in counts.items()))
    print("output:", logs, "\nfailed, and passes with gloo:", *unexpected or ["none"])
    return 1 if unexpected else 0


if __name__ == "__main__":
    sys.exit(main())
