"""The suites in virtual machines do not pass where there are none: they fail with what is missing."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

SUITES = ["test_one_guest.py", "test_contract_pair.py", "test_two_guests.py", "test_two_wires.py"]
KERNEL = "linux-image-9.9.9-9-amd64"
RUN_S = 100.0  # for one run of pytest that starts nothing


def run_suite(repository: Path, suite: str, programs: Path, **environment: str):
    """pytest on one suite up to its first failure, where PATH has nothing but `programs`."""
    clean = {k: v for k, v in os.environ.items() if not k.startswith("ZEROHOP_TEST_")}
    variables = {"PATH": str(programs), "XDG_CACHE_HOME": str(programs.parent / "cache")}
    return subprocess.run(
        [sys.executable, "-m", "pytest", "-x", "-p", "no:cacheprovider", f"tests/vm/{suite}"],
        cwd=repository, env={**clean, **variables, **environment}, timeout=RUN_S,
        capture_output=True, text=True, check=False,
    )  # fmt: skip


@pytest.fixture
def programs(tmp_path: Path) -> Path:
    """An empty folder for PATH, beside an empty cache of kernels."""
    folder = tmp_path / "bin"
    folder.mkdir()
    return folder


def add(programs: Path, *names: str) -> None:
    for name in names:
        path = programs / name
        path.write_text("#!/bin/sh\nwhile read -r _; do :; done\n")
        path.chmod(0o755)


def cache_kernel(programs: Path) -> None:
    folder = programs.parent / "cache/zerohop/vm" / KERNEL
    (folder / "modules").mkdir(parents=True)
    (folder / "vmlinuz").touch()


def check_failed(done, reason: str) -> None:
    assert done.returncode == 1, done.stdout + done.stderr
    assert f"Unavailable: {reason}" in done.stdout, done.stdout + done.stderr
    assert "passed" not in done.stdout.splitlines()[-1]


@pytest.mark.parametrize("suite", SUITES)
def test_without_a_kernel_package_each_suite_fails(repository, programs, suite) -> None:
    check_failed(run_suite(repository, suite, programs), "apt-")


def test_without_qemu_the_suite_fails(repository, programs) -> None:
    cache_kernel(programs)
    add(programs, "busybox", "cpio", "setpriv")
    done = run_suite(repository, "test_one_guest.py", programs)
    check_failed(done, "qemu-system-x86_64 is missing: run .ci/packages vm")


def test_only_the_word_skip_skips(repository, programs) -> None:
    done = run_suite(repository, "test_two_guests.py", programs, ZEROHOP_TEST_VM="skip")
    assert done.returncode == 0, done.stdout + done.stderr
    assert "ZEROHOP_TEST_VM=skip" in done.stdout
    assert "passed" not in done.stdout
    check_failed(run_suite(repository, "test_two_guests.py", programs, ZEROHOP_TEST_VM="1"), "apt-")


def test_every_suite_is_among_them(repository) -> None:
    assert sorted(path.name for path in (repository / "tests/vm").glob("test_*.py")) == sorted(
        SUITES
    )
