"""A test's session with a partner: two endpoints, the peer between them, and the link."""

from __future__ import annotations

import inspect
import os
import sys
from collections.abc import Callable
from contextlib import ExitStack, suppress
from functools import cached_property
from types import TracebackType
from typing import Any

import numpy as np
import zerohop as zh

from support.case import Case
from support.far import FarProcess
from support.keeper import Keeper, keep
from support.link import DEFAULT_TIMEOUT, Link, LinkClosed
from support.partner import PartnerFailed, Partners, receive
from support.spawned import Spawned


class Session:
    """`with` it: `ep` and `peer` are this side's, `link` leads to the partner function.

    Leaving waits (at most `deadline` seconds) until the partner function has returned, then
    closes both endpoints. A partner that failed, died unbidden or hangs fails the test.
    """

    ep: zh.Endpoint
    peer: zh.Peer
    address: bytes  # of the partner's endpoint
    link: Link

    def __init__(
        self,
        partners: Partners,
        mode: str,
        case: Case,
        function: Callable[..., None],
        endpoint: zh.Endpoint | None,
        deadline: float,
    ) -> None:
        self._partners, self._mode, self._case = partners, mode, case
        self._function, self._given, self._deadline = function, endpoint, deadline
        self._killed = self._returned = self._released = False
        self._stack = ExitStack()

    def __enter__(self) -> Session:  # noqa: PYI034  Self needs Python 3.11
        self._worker = self._partners.take(self._mode)
        try:
            self.link = Link(self._worker.start(self._case, self._function))
        except BaseException:  # whatever it is, the process does not stay
            self._worker.discard()
            raise
        try:
            self._open()
        except BaseException as error:
            self._explain(error)
            self._stack.close()
            self._worker.discard()
            raise
        return self

    def _open(self) -> None:
        self._stack.callback(self.link.close)
        self.ep = self._given or self._stack.enter_context(self._case.open_endpoint())
        _, self.address = self._report()
        if self._case.connected:
            self.peer = self.ep.connect(self.address, timeout=DEFAULT_TIMEOUT)

    def _report(self, timeout: float = DEFAULT_TIMEOUT) -> tuple[str, Any]:
        return receive(self._worker.control, timeout, self._worker)

    @cached_property
    def keeper(self) -> Keeper:
        """Of a partner that keeps memory: who gives it orders. It is asked to end when the session does."""
        return Keeper(self.link)

    def check(self) -> None:
        """Bytes go to the keeper and are there."""
        values = np.arange(1000)
        target = self.keeper.array("numpy", np.zeros_like(values))
        self.peer.write(self.ep.register(values), target.remote).wait()
        np.testing.assert_array_equal(target.show(), values)

    @property
    def pid(self) -> int:
        """Of the partner process, on its host."""
        return self._process.pid

    @property
    def _process(self) -> Spawned | FarProcess:
        assert self._worker.process is not None, "a thread has no process of its own"
        return self._worker.process

    def signal(self, number: int) -> None:
        """Sends a signal to the partner process. Kills and stops are final for this partner."""
        self._killed = True
        self._process.signal(number)

    def returned(self) -> None:
        """Waits until the partner function has returned; its endpoint goes on serving."""
        if not self._returned:
            kind, _ = self._report(self._deadline)
            assert kind == "returned", kind
            self._returned = True

    def release(self) -> None:
        """Lets the partner close its endpoint, after its function has returned."""
        if not self._released:
            self._worker.control.send("release")
            self._released = True

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        good = False
        try:
            if self._killed:
                return
            if error is None:
                self._finish()
                good = True
            else:
                self._explain(error)
        finally:
            with suppress(zh.Error) if error is not None else ExitStack():
                self._stack.close()
            self._partners.give_back(self._worker, good)

    def _finish(self) -> None:
        if self._function is keep or "keeper" in vars(self):
            with suppress(LinkClosed):  # it was reported before
                self.keeper.end()
        self.returned()
        self.release()
        self._stack.close()  # both ends close at the same time
        kind, _ = self._report(self._deadline)
        assert kind == "closed", kind

    def _explain(self, error: BaseException) -> None:
        """The test failed first: what the partner says about it goes beside the test's error."""
        self.link.close()
        try:
            while self._report(2.0)[0] == "address":
                pass
        except PartnerFailed as failure:
            if "LinkClosed" in str(failure):  # it failed because the test did
                return
            print(f"beside {type(error).__name__}: {failure}", file=sys.stderr)


class Remote:
    """`with remote(partner_function, *args) as s:` runs the function as this test's partner."""

    def __init__(self, partners: Partners, mode: str, device: str) -> None:
        self._partners = partners
        self.mode = mode
        self.device = device
        # Whether the case runs over p2p, as the `device` fixture says in the environment.
        self.p2p = os.environ.get("ZEROHOP_P2P") == "1"

    def __call__(
        self,
        function: Callable[..., None],
        *args: Any,
        connected: bool = True,
        endpoint: zh.Endpoint | None = None,
        deadline: float = DEFAULT_TIMEOUT,
        **options: Any,
    ) -> Session:
        path = inspect.getsourcefile(function)
        assert path is not None
        case = Case(path, function.__name__, self.device, args, connected, options)
        return Session(self._partners, self.mode, case, function, endpoint, deadline)
