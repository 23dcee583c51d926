"""The mistakes that everybody makes once: a sentence says what was wrong, and shows no secret."""

import re
import sys

import numpy as np
import pytest
import zerohop as zh
from support.arrays import array
from support.keeper import keep
from support.program import run_python

DUMPS = ("incompatible", "Invoked with", "cast", "PYBIND11", "\n")


def complaint(kind, call) -> str:
    with pytest.raises(kind) as caught:
        call()
    text = str(caught.value)
    assert not any(word in text for word in DUMPS), text
    assert len(text) < 250, text
    return text


def test_mistakes_at_a_peer(thread):
    with thread(keep) as s:
        memory, _ = array(s.ep, "numpy", np.zeros(8))
        far = s.keeper.array("numpy", np.zeros(8)).remote
        x, p, nobody = np.zeros(8), s.peer, object()
        cases = {
            "pass its .remote": lambda: p.write(x, memory),
            "destination must be a RemoteMemory, not ndarray: the two are swapped":
                lambda: p.write(far, x),
            "source must be a RemoteMemory, not ndarray: the two are swapped": lambda: p.read(x, far),
            "not str: look the name up": lambda: p.write(x, "m"),
            "an object is not an array": lambda: p.write(nobody, far),
            "summand must be an int, not str": lambda: p.fetch_add(far[0], "1"),
            "a name must be a str, not int": lambda: p[3],
            "timeout must be a number of seconds, or None, not str":
                lambda: p.write(x, far, timeout="1"),
            "notify must be a pair .slot, value., not an int": lambda: p.write(x, far, notify=7),
            "slot must be an int, not bool": lambda: p.notify(True, 1),
            "pairs must be a list of pairs of arrays, not int": lambda: p.write_many(3),
            "pair 1 is swapped: .local, remote.": lambda: p.write_many([(x, far), (far, x)]),
            "pair 2 must be a tuple .local, remote., not a Memory":
                lambda: p.write_many([(x, far), (x, far), memory]),
        }  # fmt: skip
        for text, call in cases.items():
            said = complaint(TypeError, call)
            assert re.search(text, said), (text, said)
        for call in (lambda: p.write(x, far, timeout=-1), lambda: p.write(x, far).wait(-1)):
            assert "timeout must be a number of seconds >= 0, not -1" in complaint(ValueError, call)


def test_mistakes_at_an_endpoint(open_endpoint):
    ep, other = open_endpoint(), open_endpoint()
    cases = {
        "memory must be a Memory, not ndarray: register": lambda: ep.share("y", np.zeros(3)),
        "memory must be a Memory, not Grant: send its .remote": lambda: ep.share(
            "y", ep.grant(ep.empty(3))
        ),
        "a name must be a str, not int": lambda: ep.share(3, ep.empty(3)),
        "an address must be bytes, not str": lambda: ep.connect("abc"),
        "slot must be an int, not str": lambda: ep.wait_notify("3"),
        "timeout must be a number of seconds": lambda: ep.wait_notify(3, "1"),
        "device must be a str or a list of them, not int": lambda: zh.Endpoint(3),
    }
    for text, call in cases.items():
        said = complaint(TypeError, call)
        assert text in said, (text, said)
    with pytest.raises(ValueError, match="must not be empty"):
        ep.share("", ep.empty(3))
    with pytest.raises(zh.RegistrationError, match="another Endpoint"):
        ep.share("x", other.empty(3))


def test_messages_move_memory_of_their_own_endpoint(open_endpoint):
    ep, other = open_endpoint(), open_endpoint()
    peer = ep.connect(other.address)
    for nbytes in (8, 1 << 20):  # within a message, and read in place
        foreign = other.empty(nbytes)
        for call in (peer.send, peer.recv):
            with pytest.raises(zh.RegistrationError, match="another Endpoint"):
                call(foreign)
    peer.send(ep.empty(8)).wait()  # the queue pair still works


def test_no_error_shows_an_address(open_endpoint):
    ep, other = open_endpoint(), open_endpoint()
    address = other.address
    shown = repr(address[8:24])[2:-1]
    calls = [
        lambda: ep.connect(address, timout=3),
        lambda: ep.connect(address, "3"),
        lambda: ep.connect(address, 3, 4),
        lambda: ep.connect([address]),
        lambda: zh._core.Endpoint.connect(ep, address, "3"),
    ]
    for call in calls:
        with pytest.raises(TypeError) as caught:
            call()
        assert shown not in str(caught.value)
        assert str(address)[2:20] not in str(caught.value)


@pytest.mark.parametrize("kind", [bytes, bytearray, memoryview])
def test_an_address_is_anything_with_bytes(open_endpoint, kind):
    ep, other = open_endpoint(), open_endpoint()
    assert ep.connect(kind(other.address)).id == other.id


def put(ep, peer, link):
    peer.notify(np.uint16(4), np.int64(9)).wait()
    peer.write_many([], notify=[np.int8(5), np.uint32(8)]).wait()
    link.recv()


def test_numpy_integers_are_integers(thread):
    with thread(put) as s:
        assert s.ep.wait_notify(np.int32(4)) == 9
        assert s.ep.wait_notify_any(np.int32(5), np.uint8(1)) == (5, 8)
        s.link.send("end")


def test_closed_memory_is_no_array(open_endpoint):
    memory = open_endpoint().empty(3)
    view = np.asarray(memory)
    memory.close()
    for call in (
        lambda: np.asarray(memory),
        lambda: np.array(memory, float),
        lambda: memory[0],
        lambda: memory[:],
        lambda: memory.remote,
    ):
        with pytest.raises(zh.RegistrationError, match="closed"):
            call()
    assert "closed" in repr(memory)
    assert view.sum() == 0  # a view outlives the registration


def test_array_honours_dtype_and_copy(open_endpoint):
    memory = open_endpoint().empty(3, "int32")
    assert np.shares_memory(np.asarray(memory), memory.__array__())
    assert memory.__array__(float).dtype == float
    assert not np.shares_memory(memory.__array__(copy=True), memory.__array__())
    with pytest.raises(ValueError, match="without a copy"):
        memory.__array__(float, copy=False)


def test_types_that_numpy_lacks_do_not_become_integers(open_endpoint, monkeypatch):
    memory = open_endpoint().empty((3, 4), "bfloat16")
    with pytest.raises(BufferError, match="bfloat16"):
        memoryview(memory)
    monkeypatch.setitem(sys.modules, "ml_dtypes", None)
    with pytest.raises(TypeError, match=r"torch\.from_dlpack"):
        np.asarray(memory)
    # ml_dtypes registers types of its own with NumPy; any 2-byte type shows that it is asked.
    stand_in = type(sys)("ml_dtypes")
    stand_in.bfloat16 = np.float16
    monkeypatch.setitem(sys.modules, "ml_dtypes", stand_in)
    array = np.asarray(memory[:, ::2])
    assert (array.dtype, array.shape, array.strides) == (np.float16, (3, 2), (8, 4))
    assert array.ctypes.data == memory.address


def test_bfloat16_in_numpy(open_endpoint):
    import ml_dtypes

    assert np.asarray(open_endpoint().empty(3, "bfloat16")).dtype == ml_dtypes.bfloat16


WAITS_FOR_A_NOTIFICATION = """
import threading
import zerohop as zh
ep = zh.Endpoint("soft0")
entered = threading.Event()
def wait():
    entered.set()
    ep.wait_notify(1, timeout=60)
threading.Thread(target=wait, daemon=True).start()
entered.wait()
"""

ASKS_FOR_THE_GIL_WHILE_THE_INTERPRETER_ENDS = """
import select
import sys
import threading
import zerohop as zh

device = zh.verbs.Device("soft0")
entered = threading.Event()

def wait():
    entered.set()
    while True:
        device.async_event(timeout=0.05)

class LetsGoOfTheGilAtTheEnd:
    def __del__(self, select=select.select):
        select([], [], [], 0.5)

threading.Thread(target=wait, daemon=True).start()
entered.wait()
sys.late = LetsGoOfTheGilAtTheEnd()
"""


@pytest.mark.parametrize(
    "program", [WAITS_FOR_A_NOTIFICATION, ASKS_FOR_THE_GIL_WHILE_THE_INTERPRETER_ENDS]
)
def test_a_daemon_thread_that_waits_ends_quietly(program):
    done = run_python("-c", program)
    assert (done.returncode, done.stderr) == (0, "")
