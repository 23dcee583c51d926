"""The far end: a process that carries out what the near end asks for, and the listener that starts it."""

from __future__ import annotations

import secrets
import socket
import threading
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import ExitStack, suppress
from functools import cached_property, partial
from typing import TYPE_CHECKING, Any

from zerohop.errors import Error, PeerLost, ProtocolError
from zerohop.local import Link, Ranks
from zerohop.verify.adapter.channel import SECRET_NBYTES, Channel, accept, dial, make_address
from zerohop.verify.adapter.end import End
from zerohop.verify.adapter.engine_end import EngineEnd
from zerohop.verify.adapter.step import Failed, Stop

if TYPE_CHECKING:
    from typing_extensions import Self

ANSWER_S = 20.0  # for a call, longer than it may take by itself
ANYWHERE = "0.0.0.0"
ELSEWHERE = "192.0.2.1", 9  # of nobody (RFC 5737): the address from which others are reached
OF_END = {
    *("memory", "open", "connect", "offer", "take_received", "fill", "differs"),
    *("differs_in_chunks", "word", "set_word", "ping_pong"),
}
OF_ENGINE = {"address", "differs", "hear", "take_notification"}
ENGINE = "engine_"  # prefix of calls of the latter


class Far:
    """The far end as the near one sees it: methods of End, and of EngineEnd behind "engine_"."""

    def __init__(self, address: bytes) -> None:
        self._channel = dial(address)
        self.broken = False

    def __getattr__(self, name: str) -> Callable[..., Any]:
        return partial(self._call, name)

    def _call(self, name: str, *arguments: Any, seconds: float | None = None) -> Any:
        """seconds: the last argument of those calls that wait so long."""
        more = () if seconds is None else (seconds,)
        try:
            self._channel.send([name, *arguments, *more])
            answer = self._channel.receive(ANSWER_S + (seconds or 0.0))
        except Error as error:
            self.broken = True
            cause = f"the other end did not carry out {name}: {error}"
            raise Failed(cause, "see what it says there") from None
        if "failed" in answer:
            raise Failed(f"at the other end: {answer['failed']}", answer["remedy"])
        return answer["value"]

    def close(self) -> None:
        self._channel.close()


class Session:
    """What the far end has for one near end."""

    def __init__(self, device: str) -> None:
        self._device = device
        self._threads = ThreadPoolExecutor(1, "zerohop verify")
        self._under_way: Future[Any] | None = None

    @cached_property
    def _end(self) -> End:
        return End(self._device)

    @cached_property
    def _engine(self) -> EngineEnd:
        return EngineEnd(self._device)

    def perform(self, name: str, *arguments: Any) -> Any:
        if name == "start":
            self._under_way = self._threads.submit(self.perform, *arguments)
            return None
        if name == "finish" and self._under_way is not None:
            return self._under_way.result(*arguments)
        if name == "restart_engine":
            self._close_engine()
            return None
        if name in OF_END:
            return getattr(self._end, name)(*arguments)
        if name.startswith(ENGINE) and name.removeprefix(ENGINE) in OF_ENGINE:
            return getattr(self._engine, name.removeprefix(ENGINE))(*arguments)
        raise ProtocolError(
            f"the other end asks for {name!r}, which is unknown here: use one version of zerohop"
        )

    def _close_engine(self) -> None:
        engine = self.__dict__.pop("_engine", None)
        if engine is not None:
            engine.close()


def serve(link: Link, channel: Channel, device: str) -> None:
    """A process: performs calls until the near end goes away."""
    del link
    session = Session(device)
    while True:
        try:
            name, *arguments = channel.receive(None)
        except Error:
            return
        try:
            answer = {"value": session.perform(name, *arguments)}
        except Stop as stop:
            answer = {"failed": stop.cause, "remedy": stop.remedy}
        except Exception as error:  # noqa: BLE001 it is the answer
            answer = {"failed": f"{type(error).__name__}: {error}", "remedy": ""}
        with suppress(PeerLost):
            channel.send(answer)


class Listener:
    """Accepts one near end at a time; each new one ends the last. A context manager."""

    def __init__(self, device: str, host: str = "", port: int = 0, local: bool = False) -> None:
        self._device = device
        self._secret = secrets.token_bytes(SECRET_NBYTES)
        bound = "127.0.0.1" if local else host or ANYWHERE
        family = socket.AF_INET6 if ":" in bound else socket.AF_INET
        self._server = socket.create_server((bound, port), family=family)
        self._host = "127.0.0.1" if local else host or own_address()
        self._session = ExitStack()
        self._thread = threading.Thread(target=self._accept, name="zerohop verify", daemon=True)
        self._thread.start()

    @property
    def address(self) -> bytes:
        port: int = self._server.getsockname()[1]
        return make_address(self._secret, self._host, port)

    def join(self) -> None:
        self._thread.join()

    def close(self) -> None:
        with suppress(OSError):
            self._server.shutdown(socket.SHUT_RDWR)  # ends accept()
        self._thread.join()
        self._server.close()
        self._session.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _accept(self) -> None:
        while True:
            try:
                connection, _ = self._server.accept()
            except OSError:
                return
            try:
                channel = accept(connection, self._secret)
                self._session.close()
                self._session.enter_context(Ranks(serve, 1, channel, self._device))
            except (Error, OSError):
                pass  # a wrong secret, or no process could start: the connection is closed
            connection.close()


def own_address() -> str:
    """The address that other hosts are reached from; that of this host alone if there is none."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        try:
            probe.connect(ELSEWHERE)
        except OSError:
            return "127.0.0.1"
        host: str = probe.getsockname()[0]
        return host
