"""A Linux kernel with Soft-RoCE, from a Debian package that is unpacked, not installed, and cached.

ZEROHOP_TEST_KERNEL chooses a version ("6.1" takes the newest 6.1 kernel). Without it the newest kernel
in the cache is taken, or, when there is none, the newest that apt knows.
"""

import lzma
import os
import re
import shutil
import tempfile
from dataclasses import dataclass
from pathlib import Path

from vm.apt import download, run
from vm.siw import siw
from vm.unavailable import Unavailable

# What a guest needs, with everything those depend on. rdma_rxe asks for the crc32 transform by name
# when a link is added, and libcrc32c for crc32c, which no dependency list shows.
MODULES = [
    "virtio_pci",
    "virtio_console",
    "virtio_net",
    "9pnet_virtio",
    "9p",
    "overlay",
    "dummy",
    "crc32_generic",
    "ib_uverbs",
    "rdma_ucm",
    "rdma_rxe",
    "crc32c_generic",
    "libcrc32c",  # the last two are for siw, which siw.py builds
]
OPTIONAL = {"crc32_generic", "crc32c_generic", "libcrc32c"}  # newer kernels need no module for them
PACKAGE = re.compile(r"linux-image-(\d[\w.+~-]*)-amd64")
FLAVOURS = ("-cloud", "-rt")  # the first lacks rdma_rxe, the second is for other purposes


@dataclass(frozen=True)
class Kernel:
    """A folder with `vmlinuz` and `modules/`: unpacked .ko files, in the order to load them."""

    folder: Path

    @property
    def image(self) -> Path:
        return self.folder / "vmlinuz"

    @property
    def modules(self) -> list[Path]:
        return sorted((self.folder / "modules").iterdir())

    def modules_for(self, fabric: str) -> list[Path]:
        """fabric: "rxe" or "siw", as `rdma link add` calls it."""
        return [*self.modules, *([siw(self.folder)] if fabric == "siw" else [])]


def cache() -> Path:
    base = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    return Path(base) / "zerohop" / "vm"


def kernel() -> Kernel:
    """The kernel to test on; fetched on the first call on this machine. Raises Unavailable."""
    wanted = os.environ.get("ZEROHOP_TEST_KERNEL", "")
    folder = cache()
    folder.mkdir(parents=True, exist_ok=True)
    cached = _newest([path.name for path in folder.iterdir()], wanted)
    return Kernel(folder / (cached or _download(wanted, folder)))


def _download(wanted: str, folder: Path) -> str:
    try:
        return _fetch(_available(wanted), folder)
    except Unavailable:
        if os.geteuid() != 0:
            raise
    run("apt-get", "update", "-qq")  # the lists were empty, or older than what the mirror keeps
    return _fetch(_available(wanted), folder)


def _newest(names: list[str], wanted: str) -> str | None:
    def version(match: re.Match[str]) -> list[int]:
        return [int(number) for number in re.findall(r"\d+", match[1])]

    matches = [match for name in names if (match := PACKAGE.fullmatch(name))]
    usable = [m for m in matches if m[1].startswith(wanted) and not m[1].endswith(FLAVOURS)]
    return max(usable, key=version)[0] if usable else None


def _available(wanted: str) -> str:
    names = run("apt-cache", "search", "--names-only", "^linux-image-[0-9].*-amd64$")
    found = _newest([line.split()[0] for line in names.splitlines()], wanted)
    if found is None:
        raise Unavailable(
            f"apt knows no package linux-image-{wanted}*-amd64 here: copy the folder "
            f"{cache()} from a Debian system on which this has run"
        )
    return found


def _fetch(package: str, folder: Path) -> str:
    """Leaves `folder/package` complete or not at all, whoever else fetches at the same time."""
    with tempfile.TemporaryDirectory(dir=folder, prefix=".fetching-") as name:
        work = Path(name)
        print(f"fetching {package}", flush=True)
        run("dpkg-deb", "-x", str(download(package, work)), str(work / "tree"))
        ready = work / "ready"
        (ready / "modules").mkdir(parents=True)
        (image,) = (work / "tree/boot").glob("vmlinuz-*")
        shutil.move(image, ready / "vmlinuz")
        _keep_modules(work / "tree", ready / "modules")
        try:
            ready.rename(folder / package)
        except OSError:
            if not (folder / package / "vmlinuz").exists():
                raise
    return package


def _keep_modules(tree: Path, kept: Path) -> None:
    (modules,) = (tree / "lib/modules").iterdir()
    run("depmod", "-b", str(tree), modules.name)
    for number, path in enumerate(_load_order(modules)):
        content = path.read_bytes()
        if path.suffix == ".xz":
            content = lzma.decompress(content)
        elif path.suffix != ".ko":
            raise Unavailable(
                f"kernel modules like {path.name} cannot be unpacked: choose another "
                "kernel by ZEROHOP_TEST_KERNEL"
            )
        (kept / f"{number:02}-{_module_name(path)}.ko").write_bytes(content)


def _module_name(path: Path | str) -> str:
    return Path(path).name.split(".ko")[0].replace("-", "_")


def _load_order(modules: Path) -> list[Path]:
    """The files of MODULES, each behind those it depends on."""
    needs: dict[str, list[str]] = {}  # by name: its file, then the files it needs
    for line in (modules / "modules.dep").read_text().splitlines():
        file, _, rest = line.partition(":")
        needs[_module_name(file)] = [file, *rest.split()]
    built_in = {_module_name(x) for x in (modules / "modules.builtin").read_text().splitlines()}
    order: list[str] = []
    for name in MODULES:
        if name in built_in or (name in OPTIONAL and name not in needs):
            continue
        if name not in needs:
            raise Unavailable(f"the kernel {modules.name} has no module {name}")
        # modules.dep lists dependencies so that the last is to be loaded first
        order += [file for file in reversed(needs[name]) if file not in order]
    return [modules / file for file in order]
