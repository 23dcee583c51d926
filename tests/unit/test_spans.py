"""Arrays as bytes and as words: the same memory, kept alive, or a reason why not."""

import gc
import weakref

import numpy as np
import pytest
import zerohop as zh
from support.dlpack import CUDA, Producer
from zerohop._core import ArrayView
from zerohop._world.parts import Span


def test_bytes_and_words_are_the_same_memory():
    array = np.arange(6, dtype=np.float32).reshape(2, 3)
    span = Span(array)
    assert (span.address, span.nbytes, span.device) == (array.ctypes.data, 24, "cpu")
    assert np.asarray(span.bytes()).tobytes() == array.tobytes()
    np.asarray(span.bytes())[4] = 1
    assert array[0, 1] != 1.0
    words = np.asarray(span.words())
    assert (words.dtype, words.shape) == (np.uint64, (3,))
    words[2] = 0
    assert array[1].tolist()[1:] == [0, 0]


def test_the_array_lives_as_long_as_its_bytes():
    class Array(np.ndarray):
        pass

    array = np.zeros(4).view(Array)
    alive = weakref.ref(array)
    seen = Span(array).bytes()
    del array
    gc.collect()
    assert alive() is not None
    del seen
    gc.collect()
    assert alive() is None


def test_memory_is_taken_as_it_is():
    with zh.Endpoint("soft0") as endpoint:
        made, floats = endpoint.empty(16), endpoint.empty(4, "float32")
        assert Span(made[4:]).address == made.address + 4
        for memory in (made, floats, floats.reshape(2, 2)):
            registered = Span(memory).registered
            assert (registered.dtype, registered.shape) == ("uint8", (16,))
            assert registered.remote.address == memory.address
            assert Span(memory).bytes().nbytes == 16
        assert Span(np.asarray(made)).registered is None


def test_any_array_of_a_gpu_is_bytes():
    floats = Producer(1 << 20, (3, 4), code=2, bits=32, device_type=CUDA, device_id=1)
    span = Span(floats)
    assert (span.address, span.nbytes, span.device) == (1 << 20, 48, "cuda:1")
    flat = ArrayView(span.bytes())  # as register() takes it
    assert (flat.address, flat.shape, flat.dtype) == (1 << 20, (48,), "uint8")
    assert (flat.device, flat.writable) == ("cuda:1", True)
    assert span.words() is None


def test_what_has_gaps_is_refused():
    with pytest.raises(ValueError, match="contiguous"):
        Span(np.zeros((4, 4))[:, 1])
    with pytest.raises(TypeError, match="is not an array"):
        Span(3.5)
    assert Span(np.zeros((0, 4))).bytes().shape == (0,)
