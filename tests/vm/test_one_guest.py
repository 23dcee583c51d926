"""The contract suite on Soft-RoCE and on Soft iWARP: libibverbs, the kernel's RDMA stack, rxe0 or siw0.

One run of pytest in one guest each; each of its files is one test here. selection.py says which cases.
"""

import pytest

from vm import selection
from vm.guest import Guest, python
from vm.kernel import kernel
from vm.qemu import Machine
from vm.suite import check_file, run_selection

SELECTIONS = {device: selection.in_one_guest(device) for device in ("rxe0", "siw0")}


@pytest.fixture(scope="module")
def results(request):
    chosen = SELECTIONS[request.param]
    machine = Machine(kernel(), python(), memory_mib=3072, fabric=chosen.device.rstrip("0"))
    with Guest(machine) as guest:
        yield run_selection(guest, chosen)


def cases(device):
    chosen = SELECTIONS[device]
    return pytest.mark.parametrize(
        ("results", "file"),
        [pytest.param(device, file, id=file.stem) for file in chosen.files],
        indirect=["results"],
    )


@pytest.mark.timeout(SELECTIONS["rxe0"].seconds + 600)
@cases("rxe0")
def test_on_rxe0(results, file):
    check_file(results, file)


@pytest.mark.timeout(SELECTIONS["siw0"].seconds + 600)
@cases("siw0")
def test_on_siw0(results, file):
    check_file(results, file)


@pytest.mark.parametrize(
    "table", [selection.LEFT_OUT, selection.OF_ONE_HOST, selection.NOT_ON_IWARP]
)
def test_what_is_left_out_exists(repository, table):
    """A case that was renamed would run again unnoticed."""
    for names in table.values():
        for each in names:
            file, _, name = each.partition("::")
            text = (repository / selection.CONTRACT / file).read_text()
            assert f"def {name.partition('[')[0]}(" in text or not name, each
