"""What is shared stays alive exactly as long as somebody may look at it, on whatever thread it ends."""

import gc
import sys
import threading
import weakref

import numpy as np
import pytest
import torch
import zerohop as zh
from support import dlpack
from support.link import until
from support.program import run_python
from zerohop._core import ArrayView


@pytest.mark.parametrize("make", [lambda: np.zeros(100), lambda: bytearray(100)])
def test_references_return_to_what_they_were(make):
    source = make()
    before = sys.getrefcount(source)
    view = ArrayView(source)
    part = view[1:]
    back = np.asarray(part)
    again = np.from_dlpack(part)
    assert sys.getrefcount(source) > before
    del view, part, back
    gc.collect()
    assert sys.getrefcount(source) > before, "an export keeps the owner alive"
    del again
    assert sys.getrefcount(source) == before


def test_a_tensor_that_gets_other_memory_leaves_the_old_one_alive():
    tensor = torch.arange(1000)
    view = ArrayView(tensor)
    tensor.data = torch.zeros(3)
    others = [torch.full((1000,), -1) for _ in range(20)]  # would reuse the old memory
    assert view.address not in {other.data_ptr() for other in others}
    assert np.asarray(view).tolist() == list(range(1000))


def test_an_unused_capsule_releases_its_owner():
    source = np.zeros(3)
    before = sys.getrefcount(source)
    for version in (None, (1, 0)):
        capsule = ArrayView(source).__dlpack__(max_version=version)
        assert sys.getrefcount(source) > before
        del capsule
        assert sys.getrefcount(source) == before


@pytest.mark.parametrize("version", [None, (1, 0)])
@pytest.mark.parametrize("end", [dlpack.delete, dlpack.delete_elsewhere])
def test_owners_released_without_the_gil_go_back_through_the_main_thread(version, end):
    source = np.zeros(3)
    alive = weakref.ref(source)
    managed = dlpack.take(ArrayView(source).__dlpack__(max_version=version))
    del source
    assert alive() is not None
    end(managed)
    until(lambda: alive() is None, "the owner is released")


def test_the_next_import_releases_what_threads_have_left():
    """On a thread that is not the main one, which alone runs pending calls."""
    source = np.zeros(3)
    alive = weakref.ref(source)
    managed = dlpack.take(ArrayView(source).__dlpack__())
    del source
    seen: list[bool] = []

    def work() -> None:
        dlpack.delete_elsewhere(managed)
        ArrayView(b"")
        seen.append(alive() is None)

    thread = threading.Thread(target=work)
    thread.start()
    thread.join()
    assert seen == [True]


@pytest.mark.parametrize("holder", ["view", "numpy.asarray(view)", "view.__dlpack__()"])
def test_owners_that_outlive_the_interpreter_do_no_harm(holder):
    code = f"""
import numpy, zerohop._core
class Cycle: pass
view = zerohop._core.ArrayView(numpy.zeros(3))
kept = Cycle()
kept.held, kept.self = {holder}, kept
numpy.kept = kept
"""
    done = run_python("-c", code)
    assert (done.returncode, done.stderr) == (0, "")


@pytest.mark.parametrize(
    "make",
    [
        lambda: torch.zeros(1000),
        lambda: torch.zeros(1000, dtype=torch.bfloat16),
        lambda: torch.zeros(10, 100).t()[2:5],
        lambda: torch.nn.Parameter(torch.zeros(1000)).detach(),
    ],
)
@pytest.mark.parametrize("default", ["cpu", "meta"])  # where torch.empty() would have its memory
def test_what_a_registered_tensor_lies_in_cannot_be_resized(make, default):
    """Its bytes would be somebody else's, and peers would still write there."""
    tensor = make()
    with zh.Endpoint("soft0") as ep:
        with torch.device(default):
            memory = ep.register(tensor)
        for resize in (
            lambda: tensor.detach().resize_(100_000),
            lambda: tensor.untyped_storage().resize_(0),
        ):
            with pytest.raises(RuntimeError, match="not resizable"):
                resize()
        memory.close()


def test_what_a_transfer_uses_cannot_be_resized_either():
    with zh.Endpoint("soft0") as ep, zh.Endpoint("soft0") as other:
        peer = ep.connect(other.address)
        tensor, sent = torch.zeros(16), torch.ones(16)
        received = other.accept().recv(tensor)
        with pytest.raises(RuntimeError, match="not resizable"):
            tensor.untyped_storage().resize_(1 << 22)
        peer.send(sent).wait()
        received.wait()
        assert torch.equal(tensor, sent)
        with pytest.raises(RuntimeError, match="not resizable"):
            sent.resize_(1 << 20)


def test_what_pytorch_cannot_keep_is_reported():
    from torch._subclasses.fake_tensor import FakeTensorMode

    tensor = torch.zeros(16)
    with (
        zh.Endpoint("soft0") as ep,
        FakeTensorMode(allow_non_fake_inputs=True),
        pytest.warns(RuntimeWarning, match="cannot be kept from resizing a registered tensor"),
    ):
        ep.register(tensor)
