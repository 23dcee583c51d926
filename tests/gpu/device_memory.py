"""Memory of every kind, allocated with the driver API through cuda-bindings."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from cuda.bindings import driver

GRANULE = 2 << 20  # bytes: what cuMemCreate allocates in


def check(answer: tuple[Any, ...]) -> Any:
    error, *values = answer
    assert error == driver.CUresult.CUDA_SUCCESS, error
    return values[0] if values else None


class Array:
    """Bytes of a GPU as __cuda_array_interface__ and DLPack (through torch) have them."""

    def __init__(self, address: int, nbytes: int) -> None:
        self.address = address
        self.nbytes = nbytes
        self.__cuda_array_interface__ = {
            "shape": (nbytes,),
            "typestr": "|u1",
            "data": (address, False),
            "version": 3,
            "stream": None,
        }


def tensor(address: int, nbytes: int) -> Any:
    import torch

    return torch.as_tensor(Array(address, nbytes), device="cuda:0")


@contextmanager
def plain(nbytes: int) -> Iterator[int]:
    address = check(driver.cuMemAlloc(nbytes))
    try:
        yield int(address)
    finally:
        check(driver.cuMemFree(address))


def properties(gpudirect: bool) -> Any:
    wanted = driver.CUmemAllocationProp()
    wanted.type = driver.CUmemAllocationType.CU_MEM_ALLOCATION_TYPE_PINNED
    wanted.location.type = driver.CUmemLocationType.CU_MEM_LOCATION_TYPE_DEVICE
    wanted.location.id = 0
    wanted.allocFlags.gpuDirectRDMACapable = int(gpudirect)
    return wanted


class Reservation:
    """Addresses into which chunks of cuMemCreate are mapped."""

    def __init__(self, chunks: int) -> None:
        self.nbytes = chunks * GRANULE
        self.address = int(check(driver.cuMemAddressReserve(self.nbytes, 0, 0, 0)))
        self.mapped: dict[int, Any] = {}

    def map(self, chunk: int, gpudirect: bool = True) -> None:
        handle = check(driver.cuMemCreate(GRANULE, properties(gpudirect), 0))
        address = self.address + chunk * GRANULE
        check(driver.cuMemMap(address, GRANULE, 0, handle, 0))
        access = driver.CUmemAccessDesc()
        access.location.type = driver.CUmemLocationType.CU_MEM_LOCATION_TYPE_DEVICE
        access.location.id = 0
        access.flags = driver.CUmemAccess_flags.CU_MEM_ACCESS_FLAGS_PROT_READWRITE
        check(driver.cuMemSetAccess(address, GRANULE, [access], 1))
        self.mapped[chunk] = handle

    def unmap(self, chunk: int) -> None:
        check(driver.cuMemUnmap(self.address + chunk * GRANULE, GRANULE))
        check(driver.cuMemRelease(self.mapped.pop(chunk)))

    def close(self) -> None:
        for chunk in list(self.mapped):
            self.unmap(chunk)
        check(driver.cuMemAddressFree(self.address, self.nbytes))


@contextmanager
def reserve(chunks: int) -> Iterator[Reservation]:
    reservation = Reservation(chunks)
    try:
        yield reservation
    finally:
        reservation.close()


@contextmanager
def pooled(nbytes: int) -> Iterator[int]:
    address = check(driver.cuMemAllocAsync(nbytes, 0))
    check(driver.cuCtxSynchronize())
    try:
        yield int(address)
    finally:
        check(driver.cuMemFreeAsync(address, 0))
        check(driver.cuCtxSynchronize())


@contextmanager
def managed(nbytes: int) -> Iterator[int]:
    address = check(
        driver.cuMemAllocManaged(nbytes, driver.CUmemAttach_flags.CU_MEM_ATTACH_GLOBAL.value)
    )
    try:
        yield int(address)
    finally:
        check(driver.cuMemFree(address))


@contextmanager
def pinned(nbytes: int) -> Iterator[int]:
    address = check(driver.cuMemHostAlloc(nbytes, 0))
    try:
        yield int(address)
    finally:
        check(driver.cuMemFreeHost(address))
