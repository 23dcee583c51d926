"""Queries libibverbs for its devices in a separate process: a broken provider may hang or crash.

Run as a script; needs only the standard library. Prints the fields of facts.Verbs as JSON.
Signatures: man ibv_get_device_list, ibv_query_port, ibv_reg_dmabuf_mr.
"""

from __future__ import annotations

import ctypes
import json
import os
from pathlib import Path
from typing import Any

PAGE = os.sysconf("SC_PAGESIZE")
NO_FD = -1
MLX5 = "libmlx5.so.1"
RELAXED_ORDERING = 1 << 20  # IBV_ACCESS_RELAXED_ORDERING
PATH_NBYTES = 256
PORT_ATTR_INTS = 64  # more than struct ibv_port_attr has; it begins with state, max_mtu, active_mtu


def signatures(library: ctypes.CDLL) -> None:
    pointer = ctypes.c_void_p
    library.ibv_get_device_list.restype = ctypes.POINTER(pointer)
    library.ibv_get_device_name.restype = ctypes.c_char_p
    library.ibv_get_device_name.argtypes = [pointer]
    library.ibv_open_device.restype = pointer
    library.ibv_open_device.argtypes = [pointer]
    library.ibv_query_port.argtypes = [pointer, ctypes.c_uint8, pointer]
    library.ibv_alloc_pd.restype = pointer
    library.ibv_alloc_pd.argtypes = [pointer]


def probe() -> dict[str, Any]:
    try:
        library = ctypes.CDLL("libibverbs.so.1", use_errno=True)
    except OSError as error:
        return {"reason": f"libibverbs.so.1 cannot be loaded ({error})"}
    signatures(library)
    count = ctypes.c_int()
    handles = library.ibv_get_device_list(ctypes.byref(count))
    devices = [device(library, handles[index]) for index in range(count.value)]
    return {"devices": devices}


def device(library: ctypes.CDLL, handle: int) -> dict[str, Any]:
    name = library.ibv_get_device_name(handle).decode()
    context = library.ibv_open_device(handle)
    if not context:
        return {"name": name, "reason": os.strerror(ctypes.get_errno())}
    numbers = [int(p.name) for p in Path(f"/sys/class/infiniband/{name}/ports").glob("*")]
    return {
        "name": name,
        "mtus": {str(number): mtus(library, context, number) for number in sorted(numbers)},
        "dma_buf_errno": dma_buf_errno(library, context),
        "relaxed_errno": relaxed_errno(library, context),
        "data_direct": data_direct(handle, context),
    }


def mtus(library: ctypes.CDLL, context: int, port: int) -> list[int]:
    """[active, maximum] in bytes, 0 when unknown. The codes 1 to 5 are 256 to 4096 bytes."""
    attributes = (ctypes.c_int * PORT_ATTR_INTS)()
    if library.ibv_query_port(context, port, attributes) != 0:
        return [0, 0]
    return [128 << code if 1 <= code <= 5 else 0 for code in (attributes[2], attributes[1])]


def dma_buf_errno(library: ctypes.CDLL, context: int) -> int | None:
    """The errno of registering the impossible descriptor -1: EBADF if dma-buf is supported.

    EOPNOTSUPP or EPROTONOSUPPORT if not; None if libibverbs is too old.
    """
    domain = library.ibv_alloc_pd(context)
    if not domain or not hasattr(library, "ibv_reg_dmabuf_mr"):
        return None
    register = library.ibv_reg_dmabuf_mr
    register.restype = ctypes.c_void_p
    register.argtypes = [
        *(ctypes.c_void_p, ctypes.c_uint64, ctypes.c_size_t, ctypes.c_uint64),
        *(ctypes.c_int, ctypes.c_int),
    ]
    ctypes.set_errno(0)
    register(domain, 0, PAGE, 0, NO_FD, 0)
    return ctypes.get_errno()


def relaxed_errno(library: ctypes.CDLL, context: int) -> int | None:
    """The errno of registering memory with relaxed ordering; 0 if it is accepted.

    None without ibv_reg_mr_iova2, the first call that knows optional flags.
    """
    domain = library.ibv_alloc_pd(context)
    if not domain or not hasattr(library, "ibv_reg_mr_iova2"):
        return None
    register = library.ibv_reg_mr_iova2
    register.restype = ctypes.c_void_p
    register.argtypes = [
        *(ctypes.c_void_p, ctypes.c_void_p, ctypes.c_size_t, ctypes.c_uint64),
        ctypes.c_uint,
    ]
    memory = ctypes.create_string_buffer(PAGE)
    address = ctypes.addressof(memory)
    ctypes.set_errno(0)
    return 0 if register(domain, address, PAGE, address, RELAXED_ORDERING) else ctypes.get_errno()


def data_direct(handle: int, context: int) -> str | None:
    """The path in /sys of the adapter's second path to memory (mlx5 Data Direct); "" without one.

    None for a device of another vendor, or an old libmlx5.
    """
    try:
        mlx5 = ctypes.CDLL(MLX5)
        supported, find = mlx5.mlx5dv_is_supported, mlx5.mlx5dv_get_data_direct_sysfs_path
    except (OSError, AttributeError):
        return None
    supported.restype, supported.argtypes = ctypes.c_bool, [ctypes.c_void_p]
    find.argtypes = [ctypes.c_void_p, ctypes.c_char_p, ctypes.c_size_t]
    if not supported(handle):
        return None
    path = ctypes.create_string_buffer(PATH_NBYTES)
    return path.value.decode() if find(context, path, PATH_NBYTES) == 0 else ""


if __name__ == "__main__":
    print(json.dumps(probe()))
