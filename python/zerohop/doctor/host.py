"""The machine as the checks see it: checks read all evidence through a Host."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path

from zerohop import _core
from zerohop.doctor import facts
from zerohop.topology import Topology, topology
from zerohop.topology.tree import Tree

CAP_IPC_LOCK, CAP_SYS_PTRACE = 14, 19  # linux/capability.h


@dataclass
class Host:
    """This machine by default; tests supply their own tree and answers."""

    root: Path = Path("/")
    environ: Mapping[str, str] = field(default_factory=lambda: os.environ)
    ask_cuda: Callable[[], facts.Cuda] = facts.ask_cuda
    ask_verbs: Callable[[], facts.Verbs] = facts.ask_verbs
    ask_access: Callable[[Path], bool] = facts.may_open
    ask_memlock: Callable[[], int | None] = facts.memlock
    ask_vm: Callable[[], str] = facts.vm_problem
    ask_torch_cuda: Callable[[], str | None] = facts.torch_cuda
    ask_kernels: Callable[[], bool] = _core.has_kernels
    ask_nvtx: Callable[[], bool] = _core.has_nvtx
    ask_loopback: Callable[[], tuple[bool, str]] = facts.loopback

    @cached_property
    def tree(self) -> Tree:
        return Tree(self.root)

    @cached_property
    def topology(self) -> Topology:
        return topology(self.root / "sys", self.root / "proc", self.environ)

    @cached_property
    def cuda(self) -> facts.Cuda:
        """The answers of libcuda, which is not queried on a machine without a GPU."""
        return self.ask_cuda() if self.topology.gpus else facts.Cuda(reason="no NVIDIA GPU")

    @cached_property
    def verbs(self) -> facts.Verbs:
        return self.ask_verbs()

    @cached_property
    def kernel(self) -> tuple[int, int] | None:
        """Version of the running kernel: (6, 18)."""
        words = (self.tree.text("proc/sys/kernel/osrelease") or "").split(".")
        return (int(words[0]), int(words[1])) if len(words) > 1 and words[1].isdecimal() else None

    @cached_property
    def container(self) -> bool:
        return (
            self.tree.exists(".dockerenv")
            or self.tree.exists("run/.containerenv")
            or "KUBERNETES_SERVICE_HOST" in self.environ
            or "container" in self.environ  # systemd-nspawn, podman, lxc
        )

    def capable(self, capability: int) -> bool:
        """Whether this process has a capability (man capabilities)."""
        for line in (self.tree.text("proc/self/status") or "").splitlines():
            if line.startswith("CapEff:"):
                return bool(int(line.split()[1], 16) >> capability & 1)
        return False

    def usable(self, device: str) -> bool:
        """Whether this process may read and write a device file."""
        return self.ask_access(self.root / device)
