"""What steps work with: made when a step first asks for it, kept for the next ones, made anew where it broke."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Any

from zerohop import verbs
from zerohop._core import Peer, RemoteMemory
from zerohop.verify.adapter.end import End
from zerohop.verify.adapter.engine_end import NAME, TIMEOUT_S, EngineEnd
from zerohop.verify.adapter.far import Far
from zerohop.verify.adapter.gpu import GpuPair


@dataclass(frozen=True)
class Spec:
    """device: "mlx5_0" or "mlx5_0:1". address: of the far end's Listener. quick: shorter loops."""

    device: str
    address: bytes
    quick: bool = False


class Setup:
    def __init__(self, spec: Spec) -> None:
        self.spec = spec
        self._far: Far | None = None

    @cached_property
    def near(self) -> End:
        return End(self.spec.device)

    @property
    def device(self) -> verbs.Device:
        return self.near.device

    @property
    def far(self) -> Far:
        if self._far is not None and self._far.broken:
            self._leave()
        if self._far is None:
            self._far = Far(self.spec.address)
        return self._far

    def connect(self, count: int = 1, shared: int = 0, **options: Any) -> End:
        """New queue pairs on both ends, each connected with its counterpart; the near end. shared: SRQ of the far one."""
        near, far = self.near, self.far
        theirs = far.open(count, shared)
        ours = near.open(count, **options)
        near.connect(theirs)
        far.connect(ours)
        return near

    @cached_property
    def engine(self) -> EngineEnd:
        self.far.restart_engine()
        return EngineEnd(self.spec.device)

    @cached_property
    def peer(self) -> Peer:
        engine = self.engine
        return engine.endpoint.connect(bytes.fromhex(self.far.engine_address()), TIMEOUT_S)

    @property
    def remote(self) -> RemoteMemory:
        return self.peer.lookup(NAME, TIMEOUT_S)

    @cached_property
    def gpu(self) -> GpuPair:
        return GpuPair(self.spec.device)

    def close(self) -> None:
        if "gpu" in self.__dict__:
            self.gpu.close()
        self._leave()

    def _leave(self) -> None:
        """The far end, and what was connected with it."""
        if "engine" in self.__dict__:
            self.engine.close()
        for name in ("engine", "peer"):
            self.__dict__.pop(name, None)
        if self._far is not None:
            self._far.close()
            self._far = None
