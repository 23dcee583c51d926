"""Ranks meet in a store that is a server: Redis, a real one."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest
import zerohop as zh
from support.launchers import needs
from support.link import until
from support.ranks import TIMEOUT
from zerohop.local import Link, Ranks

RANKS = 3


@pytest.fixture
def redis(tmp_path):
    """The path of a server's socket. Of Debian's packages redis-tools has the program, which looks at the name it is given."""
    needs(commands=("redis-check-rdb",), modules=("redis",))
    socket = tmp_path / "redis"
    options = ["--port", "0", "--unixsocket", str(socket), "--unixsocketperm", "700", "--save", ""]
    server = subprocess.Popen(
        ["redis-server", *options],
        executable="/usr/bin/redis-check-rdb",
        cwd=tmp_path,
        stdout=subprocess.DEVNULL,
    )
    try:
        until(lambda: socket.exists() or server.poll() is not None, "the server listens")
        assert server.poll() is None
        yield socket
    finally:
        server.terminate()
        server.wait()


def open_redis(path: Path) -> object:
    from redis import Redis

    return Redis(unix_socket_path=str(path))


def ring(link: Link, path: Path) -> list[str]:
    with zh.World(open_redis(path), link.rank, link.size, timeout=TIMEOUT, name="ring") as world:
        segment = world.segment(8, dtype="int64")
        segment.write_notify((world.rank + 1) % world.size, segment.local + world.rank, 0, slot=0)
        segment.notify_waitsome(0, 1)
        segment.wait()
        assert segment.local[0] == (world.rank - 1) % world.size
        state = world.state()
        world.barrier()
        return state


def test_ranks_meet_in_redis(redis, monkeypatch):
    monkeypatch.setenv("ZEROHOP_DEVICE", "soft0")
    with Ranks(ring, RANKS, redis) as ranks:
        assert ranks.results() == [["healthy"] * RANKS] * RANKS


def test_a_rank_that_never_comes_to_redis_is_waited_for_in_time(redis):
    with (
        zh.World(open_redis(redis), 0, 2, device="soft0", timeout=0.3) as world,
        pytest.raises(zh.TransferTimeout, match="that rank has not made its World"),
    ):
        world.peer(1)
