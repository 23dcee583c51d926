"""The first file system of a guest: busybox, the kernel's modules and init.sh."""

import shutil
import subprocess
import tempfile
from pathlib import Path

from vm.kernel import Kernel
from vm.unavailable import Unavailable

INIT = Path(__file__).with_name("init.sh")


def busybox() -> Path:
    found = shutil.which("busybox")
    if found is None:
        raise Unavailable("busybox is missing: run .ci/packages vm (package busybox-static)")
    return Path(found)


def write_initramfs(kernel: Kernel, fabric: str, target: Path) -> None:
    """Packs the archive; about 6 MB, a tenth of a second."""
    with tempfile.TemporaryDirectory() as name:
        root = Path(name)
        for folder in ("bin", "modules", "dev", "proc", "sys", "host", "layer", "root"):
            (root / folder).mkdir()
        shutil.copy(busybox(), root / "bin/busybox")
        shutil.copy(INIT, root / "init")
        (root / "init").chmod(0o755)
        for number, module in enumerate(kernel.modules_for(fabric)):
            shutil.copy(module, root / f"modules/{number:02}-{module.name}")  # loaded by name
        paths = "".join(f"{path.relative_to(root)}\n" for path in sorted(root.rglob("*")))
        with target.open("wb") as archive:
            subprocess.run(
                ["cpio", "-o", "-H", "newc", "--quiet"],
                cwd=root, input=paths.encode(), stdout=archive, check=True, timeout=60,
            )  # fmt: skip
