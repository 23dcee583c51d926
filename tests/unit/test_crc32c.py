"""The checksum that kernels put beside their data, on the host."""

import numpy as np
import pytest
import torch
import zerohop as zh


def test_known_values():
    assert zh.crc32c(np.frombuffer(b"123456789", np.uint8)) == 0xE3069283
    assert zh.crc32c(b"") == 0
    assert zh.crc32c(np.zeros(32, np.uint8)) == 0x8A9136AA


def test_any_array_of_the_host():
    array = np.arange(1000, dtype=np.float64)
    expected = zh.crc32c(array.tobytes())
    assert zh.crc32c(array) == expected
    assert zh.crc32c(torch.from_numpy(array)) == expected
    with zh.Endpoint("soft0") as ep:
        memory = ep.empty(array.shape, "float64")
        np.asarray(memory)[:] = array
        assert zh.crc32c(memory) == expected


def test_what_it_does_not_take():
    with pytest.raises(ValueError, match="contiguous"):
        zh.crc32c(np.zeros((4, 4))[:, ::2])
    with pytest.raises(TypeError):
        zh.crc32c(7)
