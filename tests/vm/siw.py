"""Soft iWARP (siw) for a guest's kernel: Debian builds it into none, so it is built from Debian's own source.

The headers of the kernel and its source come as packages that are unpacked, not installed; siw.ko is
kept beside the kernel in the cache.
"""

import fcntl
import re
import tempfile
from pathlib import Path

from vm.apt import download, run
from vm.unavailable import Unavailable

SOURCE = "drivers/infiniband/sw/siw"
VERSION = re.compile(r"linux-image-((\d+\.\d+)[\w.+~-]*)-amd64")


def siw(kernel: Path) -> Path:
    """The module for the kernel in that folder, built on the first call. Raises Unavailable."""
    module = kernel / "siw.ko"
    with (kernel / ".siw-lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not module.exists():
            _build(kernel, module)
    return module


def _build(kernel: Path, module: Path) -> None:
    found = VERSION.fullmatch(kernel.name)
    if found is None:
        raise Unavailable(f"siw cannot be built for {kernel}: its name says no version")
    full, series = found.groups()
    with tempfile.TemporaryDirectory(dir=kernel, prefix=".building-siw-") as name:
        work = Path(name)
        print(f"building siw for {kernel.name}", flush=True)
        headers = _headers(full, work)
        source = _source(series, work)
        without = "CONFIG_DEBUG_INFO_BTF_MODULES="  # would need pahole
        run("make", "-C", str(headers), f"M={source}", "CONFIG_RDMA_SIW=m", without, "modules")
        run("strip", "--strip-debug", str(source / "siw.ko"))
        (source / "siw.ko").rename(module)


def _headers(full: str, work: Path) -> Path:
    """The folder to build modules in."""
    package = f"linux-headers-{full}-amd64"
    depends = run("apt-cache", "depends", package)
    needed = re.findall(r"Depends: (linux-headers-\S+|linux-kbuild-\S+)", depends)
    tree = work / "headers"
    for each in (package, *needed):
        run("dpkg-deb", "-x", str(download(each, work)), str(tree))
    headers = tree / "usr/src" / package
    makefile = headers / "Makefile"  # names its other half where it would be installed
    makefile.write_text(makefile.read_text().replace("/usr/src/", f"{tree}/usr/src/"))
    return headers


def _source(series: str, work: Path) -> Path:
    package = download(f"linux-source-{series}", work)
    inner = f"./usr/src/linux-source-{series}.tar.xz"
    # The archive lies in an archive: a pipe saves unpacking a gigabyte.
    script = 'dpkg-deb --fsys-tarfile "$0" | tar -xO "$1" | tar -xJ -C "$2" --wildcards "*/$3/*"'
    run("bash", "-o", "pipefail", "-c", script, str(package), inner, str(work), SOURCE)
    return work / f"linux-source-{series}" / SOURCE
