"""Strangers who mean harm: slow ones, crowds, other users of the host, files where others look for theirs."""

import os
import resource
import select
import shutil
import socket
import sys
import tempfile
import threading
import time
from collections import deque
from contextlib import suppress
from pathlib import Path

import numpy as np
import pytest
import zerohop as zh
from support.attempt import Attempt, within
from support.keeper import keep
from support.link import until
from support.program import run
from support.system import listening_ports, resident_nbytes, waiting_to_come_in
from zerohop._world.store import Directory
from zerohop.observe.runtime_folder import folders, own_folder

LONGEST_HANDSHAKE = 15.0  # seconds: a stranger has 10 to say who it is
NOBODY = 65534
# Of the system, if there is one: that of a user may lie where no other may go.
PYTHON = shutil.which("python3", path="/usr/bin:/usr/local/bin") or sys.executable
AS_NOBODY = pytest.mark.skipif(os.geteuid() != 0, reason="only root can become another user")


def descriptors(pid):
    return len(os.listdir(f"/proc/{pid}/fd"))


def descriptors_once_all_are_in(pid):
    """How many there are when everybody who stood before the doors was let in."""
    seen = deque(maxlen=10)

    def still():
        waiting = waiting_to_come_in(pid)
        seen.append(descriptors(pid))
        return waiting == 0 and len(seen) == 10 and len(set(seen)) == 1

    until(still, "nobody waits, and the count of its descriptors stands still", 20)
    return seen[-1]


def dribble(place, words):
    """Says a byte a second; how long until the other side hangs up."""
    begin = time.monotonic()
    with socket.create_connection(place) as slow:
        for byte in words:
            with suppress(OSError):
                slow.send(bytes([byte]))
            if select.select([slow], [], [], 1.0)[0]:
                with suppress(OSError):
                    if slow.recv(4096):
                        continue
                return time.monotonic() - begin
    raise AssertionError("a stranger that says a byte a second is listened to for ever")


@pytest.mark.timeout(120)
def test_who_says_a_byte_a_second_is_shown_out_and_holds_nobody_up(process, open_endpoint):
    with process(keep) as s:
        before = descriptors(s.pid)
        words = b"zerohop\1" + bytes(100)  # which begins as both of its ports expect
        slow = [
            Attempt(dribble, place, words) for place in listening_ports(s.pid) for _ in range(20)
        ]
        for _ in range(3):
            with within(5):
                assert open_endpoint().connect(s.address).alive
        for each in slow:
            assert each.value(2 * LONGEST_HANDSHAKE) < LONGEST_HANDSHAKE
        until(lambda: descriptors(s.pid) < before + 20, "its descriptors are closed", 10)
        assert s.keeper.peer()[0]


def doors(pid):
    """Abstract names under which a process lets others of this host in: man proc(5), /proc/pid/net/unix."""
    held = set()
    for descriptor in Path(f"/proc/{pid}/fd").iterdir():
        with suppress(FileNotFoundError):
            held.add(os.readlink(descriptor))
    found = (line.split() for line in Path("/proc/net/unix").read_text().splitlines()[1:])
    return {
        words[7][1:]
        for words in found
        if words[7:] and words[7].startswith("@zerohop-") and f"socket:[{words[6]}]" in held
    }


def test_who_never_knocks_at_the_doorway_is_shown_out(near_process):
    with near_process(keep) as s:
        (*_, door) = doors(s.pid)
        with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as silent:
            silent.connect(b"\0" + door.encode())
            silent.settimeout(2 * LONGEST_HANDSHAKE)
            assert silent.recv(4096) == b""


class Crowd:
    """Connections that say nothing; of more than `most` the oldest are let go of."""

    def __init__(self, most):
        self._most, self._held = most, deque()

    def come(self, place, count):
        for _ in range(count):
            if len(self._held) >= self._most:
                self._held.popleft().close()
            self._held.append(socket.create_connection(place, timeout=20))

    def go(self):
        while self._held:
            self._held.popleft().close()


@pytest.fixture
def crowd():
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    made = Crowd(most=min(hard - 500, 12_000))
    yield made
    made.go()
    resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


@pytest.mark.timeout(180)
def test_ten_thousand_half_open_connections_cost_little_and_lock_nobody_out(
    process, open_endpoint, crowd
):
    with process(keep) as s:
        assert open_endpoint().connect(s.address).alive  # what the first one brings is there
        before, memory = descriptors(s.pid), resident_nbytes(s.pid)
        places = listening_ports(s.pid)
        for _ in range(10):
            for place in places:
                crowd.come(place, 1000 // len(places))
            with within(10):
                assert open_endpoint().connect(s.address).alive
            held = descriptors_once_all_are_in(s.pid)
            assert before + 256 <= held < before + 256 + 4096 + 100
        assert resident_nbytes(s.pid) < memory + (64 << 20)
        crowd.go()
        until(lambda: descriptors(s.pid) < before + 40, "its descriptors are closed", 20)
        assert resident_nbytes(s.pid) < memory + (32 << 20)
        assert s.keeper.peer()[0]


@pytest.mark.timeout(120)
def test_a_crowd_leaves_descriptors_to_the_program(process, open_endpoint, crowd):
    """A process may have few, and what strangers take of them is a part."""
    with process(keep) as s:
        limits = resource.prlimit(s.pid, resource.RLIMIT_NOFILE)
        few = descriptors(s.pid) + 400
        resource.prlimit(s.pid, resource.RLIMIT_NOFILE, (few, limits[1]))
        for place in listening_ports(s.pid):
            crowd.come(place, 1000)
        held = descriptors_once_all_are_in(s.pid)
        assert few - 400 + 100 < held < few - 50  # a quarter at each of the ports
        kept = [s.keeper.array("empty", np.zeros(100)) for _ in range(20)]  # a descriptor each
        with within(10):
            assert open_endpoint().connect(s.address).alive
        assert len(kept) == 20
        resource.prlimit(s.pid, resource.RLIMIT_NOFILE, limits)


def as_nobody(program, *words):
    """What a program says that runs as another user; it knows nothing of zerohop."""
    who = {"user": NOBODY, "group": NOBODY, "extra_groups": []}
    done = run(PYTHON, "-I", "-S", "-c", program, *words, cwd="/", **who)
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()


ENTER = """
import socket, sys
door = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
door.settimeout(20)
door.connect("\\0" + sys.argv[1])
print("shown out" if door.recv(4096) == b"" else "let in")
"""


@AS_NOBODY
def test_another_user_is_given_nothing_at_the_doorway(near_process):
    with near_process(keep) as s:
        found = doors(s.pid)
        assert found
        for door in found:
            assert as_nobody(ENTER, door) == "shown out"  # before it has said anything
            with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as own:
                own.connect(b"\0" + door.encode())
                assert not select.select([own], [], [], 0.5)[0], "the user's own may knock"


@pytest.fixture
def reachable():
    """A folder that others may enter: what they may not is what protects itself."""
    with tempfile.TemporaryDirectory() as folder:
        os.chmod(folder, 0o755)
        yield Path(folder)


READ = """
import os, sys
for path in sys.argv[1:]:
    try:
        os.listdir(path) if os.path.isdir(path) else open(path, "rb").read(1)
        print("read", path)
    except OSError:
        pass
"""


@AS_NOBODY
def test_another_user_reads_no_memory_and_no_secret(near_process, reachable, monkeypatch):
    """No file in /dev/shm, none of the descriptors, no entry of a store, no socket of the counters."""
    runtime = reachable / "runtime"
    runtime.mkdir()
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(runtime))
    store = Directory(reachable / "job")
    store.set("key", b"a secret")
    with near_process(keep), zh.Endpoint("soft0", metrics="local") as ep:
        held = ep.empty(1000)
        assert not [name for name in os.listdir("/dev/shm") if "zerohop" in name]
        links = [f"/proc/{os.getpid()}/fd/{fd}" for fd in os.listdir("/proc/self/fd")]
        paths = [
            *links,
            str(reachable / "job"),
            str(reachable / "job" / "key"),
            str(runtime / "zerohop"),
        ]
        (socket_path,) = (runtime / "zerohop").iterdir()
        assert as_nobody(READ, *paths, str(socket_path)) == ""
        assert len(held) == 1000


@AS_NOBODY
@pytest.mark.parametrize("squat", ["folder", "link", "open", "file"])
def test_a_runtime_folder_that_another_user_has_made_is_not_taken(tmp_path, monkeypatch, squat):
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(tmp_path / "none"))
    monkeypatch.setattr("tempfile.gettempdir", lambda: str(tmp_path))
    place, elsewhere = tmp_path / f"zerohop-{os.geteuid()}", tmp_path / "elsewhere"
    elsewhere.mkdir(mode=0o700)
    if squat == "link":
        place.symlink_to(elsewhere)
    elif squat == "file":
        place.touch()
    else:
        place.mkdir(mode=0o700)
        if squat == "folder":
            os.chown(place, NOBODY, NOBODY)
        else:
            place.chmod(0o777)
    assert folders() == []
    with pytest.raises(OSError, match="no folder belongs only to this user"):
        own_folder()
    assert not list(elsewhere.iterdir())


@AS_NOBODY
def test_an_entry_that_another_user_has_put_into_a_store_is_not_believed(tmp_path):
    store = Directory(tmp_path / "job")
    store.set("key", b"value")
    os.chown(tmp_path / "job" / "key", NOBODY, NOBODY)
    with pytest.raises(PermissionError, match="belongs to user"):
        store.get("key")
    store.set("key", b"mine")
    assert store.get("key") == b"mine"


@AS_NOBODY
@pytest.mark.parametrize("place", ["link", "link/job", "direct/../link/job/deep", "own/job"])
def test_no_store_is_made_where_a_link_of_another_user_leads(tmp_path, place):
    target = tmp_path / "target"
    target.mkdir(mode=0o700)
    (tmp_path / "direct").mkdir()
    (tmp_path / "link").symlink_to(target)
    os.chown(tmp_path / "link", NOBODY, NOBODY, follow_symlinks=False)
    (tmp_path / "own").symlink_to("link")  # this user's, to the other's
    with pytest.raises(
        PermissionError, match=rf"/link, in the path .*, is a symbolic link of user {NOBODY}, who"
    ):
        Directory(tmp_path / place)
    assert not list(target.iterdir())


@AS_NOBODY
def test_no_store_is_made_in_a_directory_of_another_user(tmp_path):
    place = tmp_path / "job"
    place.mkdir(mode=0o755)
    os.chown(place, NOBODY, NOBODY)
    with pytest.raises(PermissionError, match=f"directory of user {NOBODY}"):
        Directory(place)
    assert not list(place.iterdir())
    Directory(place / "own").set("key", b"value")  # which its owner may take away, and not read


def test_a_store_lies_behind_links_of_this_user(tmp_path, monkeypatch):
    (tmp_path / "job").mkdir()
    (tmp_path / "a" / "b").mkdir(parents=True)
    (tmp_path / "a" / "b" / "link").symlink_to("../../job")
    (tmp_path / "absolute").symlink_to(tmp_path / "a" / "b")
    Directory(tmp_path / "absolute" / "link").set("key", b"value")
    monkeypatch.chdir(tmp_path / "a")
    assert Directory("b/link").get("key") == b"value"
    (tmp_path / "round").symlink_to("round")
    with pytest.raises(OSError, match="Too many levels of symbolic links"):
        Directory(tmp_path / "round")


def test_a_link_in_the_place_of_a_draft_leads_nowhere(tmp_path):
    """The name of a draft can be guessed."""
    store, precious = Directory(tmp_path / "job"), tmp_path / "precious"
    precious.write_bytes(b"as it was")
    draft = tmp_path / "job" / f".key.{os.getpid()}.{threading.get_ident()}"
    draft.symlink_to(precious)
    store.set("key", b"value")
    assert precious.read_bytes() == b"as it was"
    assert (tmp_path / "job" / "key").read_bytes() == b"value"
    assert (tmp_path / "job" / "key").stat().st_mode & 0o777 == 0o600
