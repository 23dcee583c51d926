"""The command line of QEMU for one guest."""

import functools
import os
import shutil
import socket
import subprocess
from dataclasses import dataclass, field
from pathlib import Path

from vm.kernel import Kernel
from vm.unavailable import Unavailable

HERE = Path(__file__).resolve().parent
REPOSITORY = HERE.parent.parent
KERNEL_OPTIONS = (
    "console=ttyS0",
    "quiet",
    "oops=panic",
    "panic=-1",
    "mitigations=off",
    "no_timer_check",
    # The watchdog of clocks takes an emulated processor that had to wait for the host's for a broken TSC, and
    # goes over to the HPET: a reading then takes 0.8 us and not 0.06.
    "tsc=reliable",
)


@dataclass(frozen=True)
class Machine:
    """What a guest is made of. side: 0 or 1, the host part of its addresses (10.77.WIRE.SIDE+1).

    wires: descriptors of the socket each wire is, in order; without any there is one dummy network.
    fabric: "rxe" (Soft-RoCE) or "siw" (Soft iWARP); its device on wire 1 is rxe1 or siw1.
    shell: the terminal type of an interactive shell on the console, in place of the agent.
    """

    kernel: Kernel
    python: Path
    side: int = 0
    wires: list[int] = field(default_factory=list)
    cpus: int = 2
    memory_mib: int = 2048
    fabric: str = "rxe"
    shell: str = ""


def find(program: str) -> str:
    path = shutil.which(program)
    if path is None:
        raise Unavailable(f"{program} is missing: run .ci/packages vm")
    return path


@functools.cache
def accelerator() -> list[str]:
    """Emulation works everywhere; ZEROHOP_TEST_KVM=1 asks for the processor's own virtualisation."""
    if os.environ.get("ZEROHOP_TEST_KVM") == "1":
        return ["-accel", "kvm", "-cpu", "host"]
    return ["-accel", "tcg,thread=multi", "-cpu", "max"]


def command_line(machine: Machine, initramfs: Path, agent: int, qmp: int, log: Path) -> list[str]:
    variables = {
        "zerohop_vm": HERE,
        "zerohop_repository": REPOSITORY,
        "zerohop_python": machine.python,
        "zerohop_side": machine.side,
        "zerohop_wires": len(machine.wires),
        "zerohop_fabric": machine.fabric,
        "zerohop_shell": machine.shell,
    }
    words = [f"{name}={value}" for name, value in variables.items()]
    if any(" " in word for word in words):
        raise Unavailable(f"a guest cannot run from a path with blanks: {REPOSITORY}")
    # Nothing may outlive the process that started it, however that one ends.
    line = [find("setpriv"), "--pdeathsig", "KILL", find("qemu-system-x86_64")]
    line += accelerator()
    line += ["-smp", str(machine.cpus), "-m", f"{machine.memory_mib}M"]
    line += ["-nodefaults", "-no-user-config", "-no-reboot", "-display", "none"]
    line += ["-kernel", str(machine.kernel.image), "-initrd", str(initramfs)]
    line += [
        "-append",
        " ".join([*KERNEL_OPTIONS, *words]),
    ]
    line += ["-serial", "stdio" if machine.shell else f"file:{log}"]
    line += ["-fsdev", "local,id=root,path=/,security_model=none,readonly=on,multidevs=remap"]
    line += ["-device", "virtio-9p-pci,fsdev=root,mount_tag=root"]
    line += ["-chardev", f"socket,id=agent,fd={agent}", "-device", "virtio-serial-pci"]
    line += ["-device", "virtserialport,chardev=agent,name=agent"]
    line += ["-chardev", f"socket,id=qmp,fd={qmp}", "-mon", "chardev=qmp,mode=control"]
    for number, wire in enumerate(machine.wires):
        line += ["-netdev", f"socket,id=wire{number},fd={wire}"]
        mac = f"52:54:00:77:{number:02x}:{machine.side + 1:02x}"
        line += ["-device", f"virtio-net-pci,netdev=wire{number},mac={mac},romfile="]
    return line


def start(
    machine: Machine, initramfs: Path, agent: socket.socket, qmp: socket.socket, log: Path
) -> subprocess.Popen[bytes]:
    console = None if machine.shell else subprocess.DEVNULL
    line = command_line(machine, initramfs, agent.fileno(), qmp.fileno(), log)
    with log.open("wb") as errors:
        return subprocess.Popen(
            line,
            stdin=console,
            stdout=console,
            stderr=None if machine.shell else errors,
            pass_fds=[agent.fileno(), qmp.fileno(), *machine.wires],
        )
