"""DLPack and the buffer protocol, to the letter, as consumer and as producer."""

import ctypes
from typing import Any

import numpy as np
import pytest
import torch
from support import dlpack
from support.dlpack import OldProducer, Producer
from zerohop._core import ArrayView

BYTES = np.arange(64, dtype=np.uint8)
ADDRESS = BYTES.ctypes.data


@pytest.mark.parametrize("kind", [Producer, OldProducer])
def test_a_legacy_capsule_is_taken_and_given_back(kind):
    producer = kind(ADDRESS, (2, 4), (8, 2), byte_offset=16)
    view = ArrayView(producer)
    assert (view.shape, view.strides, view.address) == ((2, 4), (8, 2), ADDRESS + 16)
    assert view.writable
    assert dlpack.name_of(producer.capsule) == "used_dltensor"
    assert producer.deleted == 0
    part = view[0]
    del view
    assert producer.deleted == 0
    del part
    assert producer.deleted == 1


def test_null_strides_mean_c_order():
    view = ArrayView(Producer(ADDRESS, (2, 3), code=2, bits=32, version=(1, 0)))
    assert (view.strides, view.dtype) == ((12, 4), "float32")


def test_the_newest_form_is_asked_for_first():
    producer = Producer(ADDRESS, (4,), (1,), version=(1, 9))
    view = ArrayView(producer)
    assert producer.calls == [{"max_version": (1, 3), "copy": False}]
    assert view.writable
    assert dlpack.name_of(producer.capsule) == "used_dltensor_versioned"
    del view
    assert producer.deleted == 1


@pytest.mark.parametrize(
    ("flags", "why"), [(dlpack.READ_ONLY, "read-only"), (dlpack.IS_COPIED, "copy"), (3, "copy")]
)
def test_flags_make_the_array_read_only(flags, why):
    view = ArrayView(Producer(ADDRESS, (4,), (1,), version=(1, 1), flags=flags))
    assert not view.writable
    assert why in view.why_read_only


def test_arrays_of_jax_are_immutable_even_where_the_capsule_cannot_say_so():
    class Array(OldProducer):
        __module__ = "jaxlib.fake"

    assert ArrayView(Array(ADDRESS, (4,), (1,))).why_read_only == "JAX arrays are immutable"


def test_a_capsule_of_another_major_version_is_only_given_back():
    producer = Producer(1, (2**62,), version=(2, 0), ndim=-5)
    with pytest.raises(BufferError, match=r"2\.x"):
        ArrayView(producer)
    assert producer.deleted == 1


MANY = (4,) + (1,) * 39


@pytest.mark.parametrize(
    ("fields", "error", "words"),
    [
        ({"lanes": 4}, TypeError, "lanes=4"),
        ({"code": 3, "bits": 64}, TypeError, "code=3"),
        ({"code": 2, "bits": 24}, TypeError, "bits=24"),
        ({"data": 0}, BufferError, "no memory"),
        ({"ndim": -1}, BufferError, "negative number"),
        ({"ndim": 40}, ValueError, "40 dimensions"),
        ({"data": 2**64 - 2}, ValueError, "address space"),
        ({"shape": (-1,)}, ValueError, "negative dimension"),
        ({"shape": (2**40, 2**40), "ndim": 2}, ValueError, "larger than the address space"),
        ({"shape": (2,), "strides": (2**62,), "bits": 64}, ValueError, "address space"),
        ({"shape": (2,), "strides": (-(2**62),), "bits": 64}, ValueError, "address space"),
    ],
)
def test_wrong_tensors_are_refused_and_given_back(fields, error, words):
    usual = {"data": ADDRESS, "shape": MANY, "strides": MANY, "ndim": 1}
    producer = Producer(**(usual | fields))
    with pytest.raises(error, match=words):
        ArrayView(producer)
    assert producer.deleted == 1


def test_memory_of_other_devices_keeps_its_device():
    for device_type, name in [(dlpack.CUDA, "cuda:3"), (10, "rocm:3"), (3, "cpu"), (17, ":3")]:
        view = ArrayView(Producer(ADDRESS, (4,), (1,), device_type=device_type, device_id=3))
        assert view.device.endswith(name)


def test_a_used_capsule_and_other_answers_are_refused():
    class Answers:
        def __init__(self, answer: Any) -> None:
            self.answer = answer

        def __dlpack__(self, **_: Any) -> Any:
            return self.answer

    producer = Producer(ADDRESS, (4,), (1,))
    ArrayView(producer)
    for answer in (producer.capsule, 7, None):
        with pytest.raises(BufferError, match="unused DLPack capsule"):
            ArrayView(Answers(answer))


# DLPack and buffers, producer side.


def test_a_capsule_has_the_version_that_the_consumer_asks_for():
    view = ArrayView(np.zeros((2, 3), "float32"))
    assert dlpack.name_of(view.__dlpack__()) == "dltensor"
    assert dlpack.name_of(view.__dlpack__(max_version=(0, 8))) == "dltensor"
    assert dlpack.name_of(view.__dlpack__(max_version=(1, 0))) == "dltensor_versioned"
    managed = dlpack.take(view.__dlpack__(max_version=(1, 1), dl_device=(1, 0), copy=False))
    assert (managed.major, managed.flags) == (1, 0)
    tensor = managed.tensor
    assert (tensor.shape[:2], tensor.strides[:2], tensor.byte_offset) == ([2, 3], [3, 1], 0)
    dlpack.delete(managed)
    assert view.__dlpack_device__() == (1, 0)


@pytest.mark.parametrize(
    ("request_", "words"),
    [
        ({"copy": True}, "without a copy"),
        ({"dl_device": (2, 0)}, "is on cpu"),
        ({"stream": 3}, "streams"),
    ],
)
def test_what_an_export_cannot_do_is_a_buffer_error(request_, words):
    with pytest.raises(BufferError, match=words):
        ArrayView(np.zeros(3)).__dlpack__(max_version=(1, 0), **request_)


def test_strides_between_elements_leave_through_buffers_only():
    records = np.zeros(4, "i4,u1")
    records["f0"] = [1, 2, 3, 4]
    view = ArrayView(records["f0"])
    assert view.strides == (5,)
    np.testing.assert_array_equal(np.asarray(view), [1, 2, 3, 4])
    with pytest.raises(BufferError, match="multiples of 4"):
        view.__dlpack__()
    assert np.from_dlpack(view[:1]).tolist() == [1]


def test_empty_arrays_export_a_null_pointer():
    managed = dlpack.take(ArrayView(np.zeros((3, 0))).__dlpack__())
    assert managed.tensor.data is None
    dlpack.delete(managed)
    assert torch.from_dlpack(ArrayView(np.zeros((3, 0)))).shape == (3, 0)


@pytest.mark.parametrize("stream", [None, -1, 1, 2, 0x7F001234])
def test_memory_of_a_gpu_leaves_for_any_stream(stream):
    producer = Producer(ADDRESS, (4,), (1,), device_type=dlpack.CUDA)
    view = ArrayView(producer)
    assert view.__dlpack_device__() == (dlpack.CUDA, 0)
    managed = dlpack.take(view.__dlpack__(stream=stream, max_version=(1, 0)))
    assert (managed.tensor.device_type, managed.tensor.device_id) == (dlpack.CUDA, 0)
    assert managed.tensor.data == ADDRESS
    dlpack.delete(managed)


@pytest.mark.parametrize("stream", [0, -2, "1"])
def test_what_no_stream_of_cuda_is_named_by(stream):
    producer = Producer(ADDRESS, (4,), (1,), device_type=dlpack.CUDA)
    view = ArrayView(producer)
    with pytest.raises(BufferError, match="a CUDA stream"):
        view.__dlpack__(stream=stream)


REQUESTS = {"simple": 0, "nd": 0x8, "c": 0x38, "f": 0x58, "any": 0x98, "full": 0x11D}


@pytest.mark.parametrize(
    ("index", "accepted"),
    [
        (np.s_[:], {"simple", "nd", "c", "any", "full"}),
        (np.s_[:, ::2], {"full"}),
        (np.s_[0], {"simple", "nd", "c", "f", "any", "full"}),
        (np.s_[0:0], {"simple", "nd", "c", "f", "any", "full"}),
    ],
)
@pytest.mark.parametrize("transposed", [False, True])
def test_buffers_honour_what_the_consumer_demands(index, accepted, transposed):
    """The flags are CPython's; numpy is the model for every answer."""

    def answers(exporter: Any, flags: int) -> bool:
        view = (ctypes.c_char * 256)()  # room for a Py_buffer
        try:
            ctypes.pythonapi.PyObject_GetBuffer(ctypes.py_object(exporter), view, flags)
        except (BufferError, ValueError):  # the latter is what numpy raises
            return False
        ctypes.pythonapi.PyBuffer_Release(view)
        return True

    source = np.zeros((4, 6))[index]
    source = source.T if transposed else source
    given = {name for name, flags in REQUESTS.items() if answers(ArrayView(source), flags)}
    assert given == {name for name, flags in REQUESTS.items() if answers(source, flags)}
    assert transposed or given == accepted
