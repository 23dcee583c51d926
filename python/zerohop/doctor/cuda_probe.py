"""Queries libcuda for its devices in a separate process: it may hang, crash or prevent a later fork.

Run as a script; needs only the standard library. Prints the fields of facts.Cuda as JSON.
Constants and signatures: cuda.h.
"""

from __future__ import annotations

import ctypes
import json
import subprocess
import sys
from typing import Any

ATTRIBUTES = {
    "compute_mode": 20,
    "posix_fd_handles": 103,
    "gpudirect": 116,
    "flush_options": 117,
    "write_order": 118,
    "dma_buf": 124,
}
NVML = "libnvidia-ml.so.1"
IPC_NBYTES = 2 << 20
IPC_TIMEOUT_S = 40  # a context on each GPU
PATTERN = 0x5A
LAZY_PEER_ACCESS = 1  # the only flag that cuIpcOpenMemHandle takes


class CudaFailure(Exception):
    def __init__(self, call: str, code: int, name: str) -> None:
        super().__init__(f"{call}: {name} ({code})")
        self.code = code


class IpcHandle(ctypes.Structure):
    _fields_ = [("reserved", ctypes.c_char * 64)]


class Bar1(ctypes.Structure):  # nvmlBAR1Memory_t, bytes
    _fields_ = [(name, ctypes.c_ulonglong) for name in ("total", "free", "used")]


class Driver:
    """libcuda with every call checked."""

    def __init__(self) -> None:
        self._library = ctypes.CDLL("libcuda.so.1")

    def call(self, function: str, *arguments: Any) -> None:
        code = getattr(self._library, function)(*arguments)
        if code != 0:
            text = ctypes.c_char_p()
            self._library.cuGetErrorName(code, ctypes.byref(text))
            raise CudaFailure(function, code, (text.value or b"unknown error").decode())

    def integer(self, function: str, *arguments: Any) -> int:
        value = ctypes.c_int()
        self.call(function, ctypes.byref(value), *arguments)
        return value.value


def probe() -> dict[str, Any]:
    try:
        driver = Driver()
    except OSError as error:
        return {"reason": f"libcuda.so.1 cannot be loaded ({error})"}
    facts: dict[str, Any] = {"version": driver.integer("cuDriverGetVersion")}
    try:
        driver.call("cuInit", 0)
        devices = range(driver.integer("cuDeviceGetCount"))
    except CudaFailure as failure:
        return {**facts, "reason": str(failure), "code": failure.code}
    facts["devices"] = [device(driver, ordinal) for ordinal in devices]
    for answer in facts["devices"]:
        answer["bar1_nbytes"], answer["bar1_used"] = bar1(answer["pci"])
    facts["peers"] = [
        [a, b]
        for a in devices
        for b in devices
        if a != b and driver.integer("cuDeviceCanAccessPeer", a, b)
    ]
    facts["ipc"] = ipc(driver, len(devices))
    return facts


def device(driver: Driver, ordinal: int) -> dict[str, Any]:
    name, address = ctypes.create_string_buffer(100), ctypes.create_string_buffer(32)
    total = ctypes.c_size_t()
    driver.call("cuDeviceGetName", name, 100, ordinal)
    driver.call("cuDeviceGetPCIBusId", address, 32, ordinal)
    driver.call("cuDeviceTotalMem_v2", ctypes.byref(total), ordinal)
    attributes: dict[str, int] = {}
    for key, number in ATTRIBUTES.items():
        try:
            attributes[key] = driver.integer("cuDeviceGetAttribute", number, ordinal)
        except CudaFailure:  # a driver without the attribute lacks the feature
            attributes[key] = 0
    return {
        "name": name.value.decode(),
        "pci": address.value.decode().lower(),
        "nbytes": total.value,
        "attributes": attributes,
    }


def bar1(address: str) -> tuple[int, int]:
    """Size and use of the window through which other PCIe devices access a GPU; zeros without NVML."""
    try:
        nvml = ctypes.CDLL(NVML)
    except OSError:
        return 0, 0
    handle, window = ctypes.c_void_p(), Bar1()
    if (
        nvml.nvmlInit_v2()
        or nvml.nvmlDeviceGetHandleByPciBusId_v2(address.encode(), ctypes.byref(handle))
        or nvml.nvmlDeviceGetBAR1MemoryInfo(handle, ctypes.byref(window))
    ):
        return 0, 0
    return window.total, window.used


def ipc(driver: Driver, count: int) -> list[str]:
    """For each GPU, why another process cannot open its memory; "" if one just did."""
    answers, handles = [""] * count, dict[int, str]()
    for ordinal in range(count):
        try:
            handles[ordinal] = export(driver, ordinal)
        except CudaFailure as failure:
            answers[ordinal] = str(failure)
    for ordinal, complaint in ask_another(handles).items():
        answers[ordinal] = complaint
    return answers


def export(driver: Driver, ordinal: int) -> str:
    """A handle (hexadecimal) of new memory that holds the pattern; both stay until this process ends."""
    context, memory, handle = ctypes.c_void_p(), ctypes.c_uint64(), IpcHandle()
    driver.call("cuDevicePrimaryCtxRetain", ctypes.byref(context), ordinal)
    driver.call("cuCtxPushCurrent_v2", context)
    driver.call("cuMemAlloc_v2", ctypes.byref(memory), ctypes.c_size_t(IPC_NBYTES))
    driver.call("cuMemsetD8_v2", memory, ctypes.c_ubyte(PATTERN), ctypes.c_size_t(IPC_NBYTES))
    driver.call("cuCtxSynchronize")
    driver.call("cuIpcGetMemHandle", ctypes.byref(handle), memory)
    return bytes(handle).hex()


def ask_another(handles: dict[int, str]) -> dict[int, str]:
    """The result of a second process for each handle."""
    if not handles:
        return {}
    command = [sys.executable, __file__, json.dumps(handles)]
    try:
        done = subprocess.run(
            command, capture_output=True, text=True, timeout=IPC_TIMEOUT_S, check=False
        )
    except subprocess.TimeoutExpired:
        return dict.fromkeys(handles, f"another process did not open it within {IPC_TIMEOUT_S} s")
    try:
        return {int(ordinal): str(answer) for ordinal, answer in json.loads(done.stdout).items()}
    except ValueError:
        return dict.fromkeys(handles, f"the other process ended with exit {done.returncode}")


def open_handle(driver: Driver, ordinal: int, encoded: str) -> str:
    """The other process: opens a handle and reads the pattern of the first one; "" if it is there."""
    context, memory, byte = ctypes.c_void_p(), ctypes.c_uint64(), ctypes.c_ubyte()
    handle = IpcHandle.from_buffer_copy(bytes.fromhex(encoded))
    try:
        driver.call("cuInit", 0)
        driver.call("cuDevicePrimaryCtxRetain", ctypes.byref(context), ordinal)
        driver.call("cuCtxPushCurrent_v2", context)
        driver.call("cuIpcOpenMemHandle_v2", ctypes.byref(memory), handle, LAZY_PEER_ACCESS)
        driver.call("cuMemcpyDtoH_v2", ctypes.byref(byte), memory, ctypes.c_size_t(1))
        driver.call("cuIpcCloseMemHandle", memory)
    except CudaFailure as failure:
        return str(failure)
    return "" if byte.value == PATTERN else f"read {byte.value:#x} where {PATTERN:#x} was written"


def open_all(encoded: str) -> dict[str, str]:
    driver = Driver()
    return {n: open_handle(driver, int(n), text) for n, text in json.loads(encoded).items()}


if __name__ == "__main__":
    print(json.dumps(open_all(sys.argv[1]) if len(sys.argv) > 1 else probe()))
