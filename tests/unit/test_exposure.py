"""Counters over HTTP: only where they are asked for, and whatever clients do."""

import os
import socket
import stat
import sys
import tempfile
import threading
import time
import urllib.error
import urllib.request
from pathlib import Path
from typing import Any

import pytest
import zerohop as zh
from support.forking import forking
from support.program import run_python
from zerohop.observe import exposure
from zerohop.observe.exposure import LOCAL, Place, place_of
from zerohop.observe.runtime_folder import folders, own_folder


@pytest.fixture(autouse=True)
def runtime(monkeypatch):
    """A folder of its own for sockets, whose paths have to be short."""
    with tempfile.TemporaryDirectory(prefix="zh") as path:
        monkeypatch.setenv("XDG_RUNTIME_DIR", path)
        monkeypatch.setattr(tempfile, "tempdir", path)
        monkeypatch.delenv("ZEROHOP_METRICS", raising=False)
        yield Path(path)


def get(url: str | None) -> str:
    assert url is not None
    with urllib.request.urlopen(url, timeout=20) as answer:
        assert answer.headers["Content-Type"].startswith("text/plain; version=0.0.4")
        return answer.read().decode()


def port_of(ep: zh.Endpoint) -> int:
    return int(str(ep.metrics_url).split(":")[2].split("/")[0])


def connected(ep: zh.Endpoint) -> socket.socket:
    return socket.create_connection(("127.0.0.1", port_of(ep)), 20)


def is_shut(client: socket.socket) -> bool:
    """By the server, within the client's patience."""
    try:
        return client.recv(1) == b""
    except ConnectionResetError:
        return True


def sockets(runtime: Path) -> list[Path]:
    return list(runtime.rglob("*.sock"))


def servers() -> list[threading.Thread]:
    return [thread for thread in threading.enumerate() if thread.name == "zerohop-metrics"]


def test_nothing_is_served_unless_it_is_asked_for(runtime):
    with zh.Endpoint("soft0") as ep:
        assert ep.metrics_url is None
        assert sockets(runtime) == []
        assert servers() == []


def test_a_port_tells_of_the_endpoints_that_asked_and_ends_with_them(runtime):
    with zh.Endpoint("soft0", name="first", metrics=0) as first:
        url = first.metrics_url
        assert str(url).startswith("http://127.0.0.1:")
        with zh.Endpoint("soft0", name="second", metrics=0) as second, zh.Endpoint("soft0"):
            assert second.metrics_url == url
            assert get(url) == zh.prometheus(*sorted([first, second], key=lambda ep: ep.id))
        assert get(url) == zh.prometheus(first)
        assert len(sockets(runtime)) == 1
        with pytest.raises(urllib.error.HTTPError, match="404"):
            get(str(url).replace("/metrics", "/else"))
    assert first.metrics_url is None
    assert sockets(runtime) == []
    assert servers() == []
    with pytest.raises(urllib.error.URLError):
        get(url)


def test_the_environment_asks_as_well(monkeypatch, runtime):
    monkeypatch.setenv("ZEROHOP_METRICS", "local")
    with zh.Endpoint("soft0") as ep:
        assert ep.metrics_url is None
        [path] = sockets(runtime)
        assert stat.S_IMODE(path.parent.stat().st_mode) == 0o700
    monkeypatch.setenv("ZEROHOP_METRICS", "nonsense")
    with pytest.raises(ValueError, match="ZEROHOP_METRICS must be 'local', a port"):
        zh.Endpoint("soft0")


@pytest.mark.parametrize(
    ("value", "place"),
    [
        (None, None),
        ("", None),
        (False, None),
        ("local", LOCAL),
        (9400, Place("127.0.0.1", range(9400, 9401))),
        ("9400-9402", Place("127.0.0.1", range(9400, 9403))),
        ("0.0.0.0:0", Place("0.0.0.0", range(1))),
        ("[::1]:9400", Place("::1", range(9400, 9401))),
    ],
)
def test_places(value, place):
    assert place_of(value) == place


@pytest.mark.parametrize("value", ["here", "-1", "65536", "9-8", "host:9400", "1:2:3", ":", "1-"])
def test_no_places(value):
    with pytest.raises(ValueError, match="metrics must be"):
        place_of(value)


@pytest.mark.parametrize("value", [True, 1.5, b"local"])
def test_no_types_of_places(value):
    with pytest.raises(TypeError, match="metrics must be"):
        place_of(value)


def test_a_port_that_is_taken():
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        with pytest.raises(
            OSError, match=rf"cannot be served on 127.0.0.1, port {port} .*9400-9415"
        ):
            zh.Endpoint("soft0", metrics=port)
        assert servers() == []
        most = min(port + 50, 65535)
        with zh.Endpoint("soft0", metrics=f"{port}-{most}") as ep:
            assert ep.metrics_url != f"http://127.0.0.1:{port}/metrics"
            get(ep.metrics_url)


def test_slow_clients_hold_nobody_up_and_are_put_out(monkeypatch):
    monkeypatch.setattr(exposure, "_CLIENT_S", 0.5)
    with zh.Endpoint("soft0", metrics=0) as ep:
        slow = [connected(ep) for _ in range(4)]
        begin = time.monotonic()
        for each in slow:
            each.sendall(b"GET /metrics HTTP/1.0\r\nX: ")
        assert "zerohop_peers" in get(ep.metrics_url)
        for each in slow:
            assert is_shut(each)
            each.close()
        assert time.monotonic() - begin < 10
        assert "zerohop_peers" in get(ep.metrics_url)


def test_idle_clients_lock_nobody_out():
    with zh.Endpoint("soft0", metrics=0) as ep:
        clients = [connected(ep) for _ in range(9)]
        assert is_shut(clients[0])
        assert "zerohop_peers" in get(ep.metrics_url)
        assert is_shut(clients[1])
        clients[8].sendall(b"GET /metrics HTTP/1.0\r\n\r\n")
        assert clients[8].recv(12) == b"HTTP/1.0 200"
        for each in clients:
            each.close()


class Named:
    """What `exposure` asks of an Endpoint."""

    def __init__(self, number: int) -> None:
        self.id = f"{number}"


def test_endpoints_come_and_go_while_they_are_reported(monkeypatch):
    monkeypatch.setattr(exposure, "prometheus", lambda *endpoints: f"{len(endpoints)}")
    interval = sys.getswitchinterval()
    staying: list[Any] = [Named(-number) for number in range(1, 301)]
    ends = [exposure.expose(each, LOCAL)[1] for each in staying]
    server = exposure._servers[LOCAL]

    def come_and_go() -> None:
        for number in range(3000):
            each: Any = Named(number)
            _, leave = exposure.expose(each, LOCAL)
            if number % 2:
                leave()

    sys.setswitchinterval(1e-6)
    worker = threading.Thread(target=come_and_go)
    worker.start()
    try:
        while worker.is_alive():
            assert int(server.text()) in (300, 301, 302)
    finally:
        sys.setswitchinterval(interval)
        worker.join(60)
    assert server.text() == "300"
    for end in ends:
        end()
    assert LOCAL not in exposure._servers


def test_close_waits_for_no_client():
    ep = zh.Endpoint("soft0", metrics=0)
    with connected(ep) as client:
        client.sendall(b"GET")
        begin = time.monotonic()
        ep.close()
        assert time.monotonic() - begin < 2
        assert is_shut(client)


def test_an_endpoint_that_is_forgotten_is_served_no_longer():
    ep = zh.Endpoint("soft0", metrics=0)
    url = ep.metrics_url
    del ep
    assert servers() == []
    with pytest.raises(urllib.error.URLError):
        get(url)


def test_a_child_of_fork_holds_no_port():
    with zh.Endpoint("soft0", metrics=0) as ep:
        port = port_of(ep)
        ours, theirs = os.pipe()
        with forking():
            child = os.fork()
        if child == 0:
            links = (f"/proc/self/fd/{fd}" for fd in os.listdir("/proc/self/fd"))
            held = {os.readlink(link) for link in links if os.path.islink(link)}
            os.write(
                theirs, repr(held & listening).encode() if (listening := inodes(port)) else b"?"
            )
            os._exit(0)
        os.close(theirs)
        assert os.read(ours, 1000) == b"set()"
        os.close(ours)
        assert os.waitpid(child, 0)[1] == 0
        assert "zerohop_peers" in get(ep.metrics_url)


def inodes(port: int) -> set[str]:
    """Of sockets that listen there: man 5 proc_pid_net."""
    rows = [line.split() for line in Path("/proc/net/tcp").read_text().splitlines()[1:]]
    here = f"0100007F:{port:04X}"
    return {f"socket:[{row[9]}]" for row in rows if row[1] == here and row[3] == "0A"}


def test_the_end_of_a_process_takes_the_socket_away(runtime):
    code = "import zerohop as zh; ep = zh.Endpoint('soft0', metrics=0); print(ep.metrics_url)"
    done = run_python("-c", code)
    assert done.stdout.startswith("http://127.0.0.1:")
    assert (done.returncode, done.stderr) == (0, "")
    assert sockets(runtime) == []


def test_a_folder_that_is_open_to_others_is_not_taken(runtime):
    mine = own_folder()
    assert mine == runtime / "zerohop"
    mine.chmod(0o755)
    second = own_folder()
    assert second == runtime / f"zerohop-{os.geteuid()}"
    assert folders() == [second]
    second.rmdir()
    second.symlink_to(runtime)
    with pytest.raises(OSError, match="no folder belongs only to this user"):
        zh.Endpoint("soft0", metrics="local")
    assert folders() == []
