"""Each resource that runs out, at each call that takes some: its limit is named, nothing is lost, and it passes.

In a child process, by support.starved: what was under way goes on while there is none, the same call works
when there is some again, and no descriptor, thread or shared mapping stays behind. More of descriptors, of
memory and of /dev/shm is in test_scarcity.py; of the memory of GPUs, and of the window through which adapters
see it (BAR1), in tests/cpp: test_gpu_buffer.cpp, test_gpu_registrations.cpp.
"""

import json
import re
import subprocess
import sys

import pytest
from support.patience import patient
from support.spawned import environment_of

FILES = r"open files \(RLIMIT_NOFILE\): raise it, `ulimit -n`"
MAPS = r"memory mappings of \d+ \(vm.max_map_count\): raise it, `sysctl -w vm.max_map_count="
ADDRESSES = r"\d+ bytes \(RLIMIT_AS\): raise it, `ulimit -v`"

SAID = {
    ("descriptors", "Endpoint"): FILES,
    ("descriptors", "connect"): FILES,
    ("descriptors", "empty"): FILES,
    ("descriptors", "CompletionQueue"): FILES,
    # Of the process that would give one away; what its other threads closed meanwhile may be enough for that,
    # and then there is none to take it in.
    (
        "descriptors",
        "p2p",
    ): r"(out of descriptors|a descriptor of its process could not be taken in).*\(ulimit -n\)",
    ("mappings", "Endpoint"): MAPS,
    ("mappings", "connect"): MAPS,
    ("mappings", "empty"): MAPS,
    ("mappings", "p2p"): MAPS,
    ("mappings", "long p2p"): rf"the thread zh-copy cannot be started.*{MAPS}",
    ("addresses", "Endpoint"): ADDRESSES,
    ("addresses", "connect"): ADDRESSES,
    ("addresses", "empty"): ADDRESSES,
    ("max_qp", "connect"): r"max_qp 1, its own or set by zh.Faults",
    ("max_mr", "connect"): r"max_mr 1, its own or set by zh.Faults",
    ("max_mr", "register"): r"max_mr 1, its own or set by zh.Faults",
    ("max_mr", "empty"): r"max_mr 1, its own or set by zh.Faults",
}


@pytest.mark.parametrize(("shortage", "call"), SAID)
def test_a_shortage_is_reported_costs_nothing_and_passes(shortage, call):
    done = subprocess.run(
        [sys.executable, "-m", "support.starved", shortage, call],
        capture_output=True, check=False, timeout=patient(40), text=True,
        env=environment_of() | {"ZEROHOP_P2P": str(int("p2p" in call))},
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    outcome = json.loads(done.stdout)
    assert re.search(SAID[shortage, call], outcome["said"]), outcome
    assert outcome["then"] == "works"
    assert not done.stderr, done.stderr
