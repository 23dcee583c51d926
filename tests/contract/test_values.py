"""RemoteMemory is a plain value; Memory describes and slices like NumPy arrays; every dtype crosses unchanged."""

import pickle
import random

import numpy as np
import pytest
import zerohop as zh
from support.arrays import array, pattern

BASE = np.arange(4 * 6 * 3, dtype=np.float32).reshape(4, 6, 3)


def random_index(rng: random.Random) -> tuple:
    """Basic indices of every kind for a 3-d array."""
    choices = [
        lambda: slice(None),
        lambda: rng.randrange(-3, 3),
        lambda: slice(rng.choice([None, *range(-7, 8)]), rng.choice([None, *range(-7, 8)])),
        lambda: slice(None, None, rng.choice([-3, -2, -1, 1, 2, 5])),
        lambda: slice(rng.randrange(-7, 8), rng.randrange(-7, 8), rng.choice([-2, -1, 1, 3])),
        lambda: None,
    ]
    index = [rng.choice(choices)() for _ in range(rng.randrange(4))]
    if rng.random() < 0.3:
        index.insert(rng.randrange(len(index) + 1), Ellipsis)
    return tuple(index)


def element(view: np.ndarray, index: tuple) -> np.ndarray:
    """view[index] as an array of its own bytes, 0-d where NumPy would make a copied scalar."""
    return view[index] if Ellipsis in index else view[(*index, Ellipsis)]


def long_axes(item) -> list[tuple[int, int]]:
    """(length, stride) of the axes on which a stride means something."""
    return [pair for pair in zip(item.shape, item.strides, strict=True) if pair[0] > 1]


def describe(item) -> tuple:
    return item.shape, item.nbytes, item.ndim, item.itemsize, item.dtype


def test_slicing_describes_what_numpy_describes(open_endpoint, kind):
    memory, view = array(open_endpoint(), kind, BASE)
    rng = random.Random(1)
    for _ in range(500):
        index = random_index(rng)
        expected = element(view, index)
        for part in (memory[index], memory.remote[index]):
            assert part.shape == expected.shape, index
            assert describe(part) == (*describe(expected)[:4], "float32"), index
            if expected.size:
                assert long_axes(part) == long_axes(expected), index
                address = expected.__array_interface__["data"][0]
                assert part.address == address, index


def test_a_view_describes_what_numpy_describes(open_endpoint, kind):
    memory, view = array(open_endpoint(), kind, BASE)
    for dtype, part in (("int16", ...), ("uint8", np.s_[1, 2:]), ("int32", np.s_[::-2, :, ::2])):
        expected = view[part].view(dtype)
        for seen in (memory[part].view(dtype), memory.remote[part].view(dtype)):
            assert describe(seen) == (*describe(expected)[:4], dtype)
            assert seen.strides == expected.strides
            assert seen.address == expected.__array_interface__["data"][0]
        shared = np.asarray(memory[part].view(dtype))
        assert np.shares_memory(shared, view)
        assert (shared == expected).all()


def test_slices_of_slices(open_endpoint):
    memory, view = array(open_endpoint(), "numpy", BASE)
    part, far, expected = memory[1:, ::-1], memory.remote[1:, ::-1], view[1:, ::-1]
    for index in [(0,), (slice(None), slice(2, 5)), (-1, -1, -1), (Ellipsis, 0)]:
        assert part[index].address == element(expected, index).__array_interface__["data"][0]
        assert far[index] == part[index].remote


def test_memory_shares_its_bytes_with_numpy_and_torch(open_endpoint, kind):
    memory, view = array(open_endpoint(), kind, BASE)
    for shared in (
        np.asarray(memory),
        np.from_dlpack(memory),
        np.asarray(memory[:, ::-2])[:, ::-1],
    ):
        shared[0, -1] = -5
        assert (view[0, -1] == -5).all() or (view[0, 1] == -5).all()
    assert memory.address == view.ctypes.data
    assert memory.writable
    assert memory.contiguous
    assert not memory[:, ::2].contiguous
    assert memory.device == "cpu"


def test_memory_stays_in_its_process(open_endpoint):
    with open_endpoint() as ep, pytest.raises(TypeError, match=r"memory\.remote"):
        pickle.dumps(ep.empty(3))


def test_remote_memory_travels_as_bytes_and_as_a_pickle(open_endpoint):
    ep = open_endpoint()
    memory, _ = array(ep, "numpy", BASE)
    for far in (memory.remote, memory.remote[1, ::-2], memory.remote[0, 0, 0], memory.remote[:0]):
        again = [zh.RemoteMemory.from_bytes(far.to_bytes()), pickle.loads(pickle.dumps(far))]
        for copy in again:
            assert copy == far
            assert hash(copy) == hash(far)
            assert describe(copy) == describe(far)
            assert copy.address == far.address
        assert far.endpoint_id == ep.id
        assert isinstance(far.to_bytes(), bytes)
    assert memory.remote != memory.remote[1:]
    assert memory.remote != "something else"
    assert len({memory.remote, memory[:].remote, memory.remote[1:]}) == 2


def test_truncated_and_extended_values_are_refused(open_endpoint):
    raw = open_endpoint().empty((3, 4), "int16").remote.to_bytes()
    for length in range(len(raw)):
        with pytest.raises((zh.ProtocolError, ValueError)):
            zh.RemoteMemory.from_bytes(raw[:length])
    with pytest.raises((zh.ProtocolError, ValueError)):
        zh.RemoteMemory.from_bytes(raw + b"\0")


def test_random_bytes_are_no_remote_memory(open_endpoint):
    raw = open_endpoint().empty((3, 4), "int16").remote.to_bytes()
    rng = random.Random(2)
    for _ in range(3000):
        changed = bytearray(raw)
        for _ in range(rng.randrange(1, 6)):
            changed[rng.randrange(len(raw))] = rng.randrange(256)
        try:
            value = zh.RemoteMemory.from_bytes(bytes(changed))
        except (zh.ProtocolError, ValueError):
            continue
        assert value.nbytes >= 0
        assert str(value)
    with pytest.raises((zh.ProtocolError, ValueError)):
        zh.RemoteMemory.from_bytes(rng.randbytes(200))


def test_names_and_reprs_tell_what_they_are(open_endpoint):
    ep = open_endpoint(name="left")
    memory = ep.empty((3, 4), "int16")
    assert ep.name == "left"
    for thing, words in ((ep, ["left", ep.device]), (memory, ["3", "4", "int16"]),
                         (memory.remote, ["3", "4", "int16"])):  # fmt: skip
        for word in words:
            assert word in repr(thing), repr(thing)
    secret = ep.address[-60:-20]
    assert secret.hex() not in repr(ep)


@pytest.mark.parametrize("shape", [7, (7,), (2, 3), (), (0, 4), [2, 2]])
def test_made_memory_has_its_shape(open_endpoint, shape):
    memory = open_endpoint().empty(shape, "float64")
    assert memory.shape == np.empty(shape).shape
    assert memory.nbytes == np.empty(shape).nbytes
    assert np.asarray(memory).shape == memory.shape


FLOATS = ["float16", "float32", "float64", "complex64", "complex128"]
INTEGERS = ["int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64"]
NUMPY = ["bool", *INTEGERS, *FLOATS]
OF_TORCH = ["bfloat16", "float8_e4m3fn", "float8_e5m2", "float8_e4m3fnuz", "float8_e5m2fnuz"]


def torch_server(ep, peer, link):
    """Memory of each PyTorch dtype, made by ep.empty, seen through DLPack."""
    import torch

    while dtype := link.recv():
        memory = ep.empty((7, 5), dtype)
        tensor = torch.from_dlpack(memory)
        assert str(tensor.dtype) == f"torch.{dtype}"
        link.send(memory.remote)
        link.meet("written")
        link.send(tensor.view(torch.uint8).numpy().tobytes())


def test_torch_dtypes(thread):
    import torch

    with thread(torch_server) as s:
        for dtype in [*NUMPY, *OF_TORCH]:
            wanted = getattr(torch, dtype)
            itemsize = torch.empty((), dtype=wanted).element_size()
            raw = torch.from_numpy(pattern(7 * 5 * itemsize))
            tensor = ((raw & 1).bool() if dtype == "bool" else raw.view(wanted)).reshape(7, 5)
            s.link.send(dtype)
            memory, far = s.ep.register(tensor), s.link.recv()
            assert memory.dtype == far.dtype == dtype
            assert memory.itemsize == far.itemsize == itemsize
            s.peer.write(memory, far).wait()
            s.link.meet("written")
            assert s.link.recv() == tensor.view(torch.uint8).numpy().tobytes()
        s.link.send(None)
