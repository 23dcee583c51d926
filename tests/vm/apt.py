"""Debian packages that are fetched to be unpacked, and the commands for it."""

import os
import shutil
import subprocess
import tempfile
from pathlib import Path

from vm.unavailable import Unavailable


def run(*command: str, cwd: Path | None = None) -> str:
    """The standard output of a command; Unavailable says what is missing or failed."""
    path = os.pathsep.join([os.environ.get("PATH", ""), "/usr/sbin", "/sbin"])
    try:
        done = subprocess.run(
            [shutil.which(command[0], path=path) or command[0], *command[1:]],
            cwd=cwd,
            capture_output=True,
            text=True,
            timeout=300,
            check=True,
        )
    except FileNotFoundError as error:
        raise Unavailable(f"{command[0]} is missing: run .ci/packages vm") from error
    except subprocess.CalledProcessError as error:
        raise Unavailable(f"{' '.join(command)} failed: {error.stderr.strip()[-500:]}") from error
    except subprocess.TimeoutExpired as error:
        raise Unavailable(f"{' '.join(command)} took more than {error.timeout} s") from error
    return done.stdout


def download(package: str, folder: Path) -> Path:
    """The archive of the package, in a folder of its own under `folder`."""
    into = Path(tempfile.mkdtemp(dir=folder))
    run("apt-get", "download", "-q", package, cwd=into)
    (archive,) = into.glob("*.deb")
    return archive
