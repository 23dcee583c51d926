"""DLPack through ctypes: producers of any capsule, right or wrong, and a consumer that takes one."""

import ctypes
from ctypes import (
    POINTER,
    Structure,
    byref,
    c_int32,
    c_int64,
    c_uint8,
    c_uint16,
    c_uint32,
    c_uint64,
)
from typing import Any

READ_ONLY, IS_COPIED = 1, 2  # flags of a versioned tensor
CPU, CUDA = 1, 2

_new = ctypes.pythonapi.PyCapsule_New
_new.restype, _new.argtypes = ctypes.py_object, [ctypes.c_void_p, ctypes.c_char_p, ctypes.c_void_p]
_name = ctypes.pythonapi.PyCapsule_GetName
_name.restype, _name.argtypes = ctypes.c_char_p, [ctypes.py_object]
_pointer = ctypes.pythonapi.PyCapsule_GetPointer
_pointer.restype, _pointer.argtypes = ctypes.c_void_p, [ctypes.py_object, ctypes.c_char_p]
_rename = ctypes.pythonapi.PyCapsule_SetName
_rename.argtypes = [ctypes.py_object, ctypes.c_char_p]


class Tensor(Structure):
    _fields_ = [
        ("data", ctypes.c_void_p),
        ("device_type", c_int32),
        ("device_id", c_int32),
        ("ndim", c_int32),
        ("code", c_uint8),
        ("bits", c_uint8),
        ("lanes", c_uint16),
        ("shape", POINTER(c_int64)),
        ("strides", POINTER(c_int64)),
        ("byte_offset", c_uint64),
    ]


# CFUNCTYPE: the GIL is released around a call from here and taken for a call to here.
Deleter = ctypes.CFUNCTYPE(None, ctypes.c_void_p)


class Legacy(Structure):
    _fields_ = [("tensor", Tensor), ("context", ctypes.c_void_p), ("deleter", Deleter)]


class Versioned(Structure):
    _fields_ = [
        ("major", c_uint32),
        ("minor", c_uint32),
        ("context", ctypes.c_void_p),
        ("deleter", Deleter),
        ("flags", c_uint64),
        ("tensor", Tensor),
    ]


def name_of(capsule: Any) -> str:
    return _name(capsule).decode()


def take(capsule: Any) -> Legacy | Versioned:
    """What a consumer does: the capsule is marked as used, the tensor is the caller's to delete."""
    name = name_of(capsule)
    kind = Versioned if name == "dltensor_versioned" else Legacy
    managed = kind.from_address(_pointer(capsule, name.encode()))
    used = ctypes.create_string_buffer(f"used_{name}".encode())
    managed.name = used  # the capsule points to it
    assert _rename(capsule, used) == 0
    return managed


def delete(managed: Legacy | Versioned) -> None:
    """Calls the deleter on this thread, which holds no GIL meanwhile."""
    managed.deleter(ctypes.addressof(managed))


def delete_elsewhere(managed: Legacy | Versioned) -> None:
    """Calls the deleter on a thread that Python has never seen, and waits for its end."""
    libc = ctypes.CDLL(None)
    thread = ctypes.c_ulong()
    address = ctypes.c_void_p(ctypes.addressof(managed))
    assert libc.pthread_create(byref(thread), None, managed.deleter, address) == 0
    assert libc.pthread_join(thread, None) == 0


_handed_out: list[Any] = []  # Producers: capsules point into them, for as long as anybody likes


class Producer:
    """An object with __dlpack__ whose capsule is exactly as given; counts the deleter's calls.

    Keywords of Tensor's fields override what is derived from the shape, uint8 by default.
    """

    def __init__(
        self,
        data: int,
        shape: tuple[int, ...],
        strides: tuple[int, ...] | None = None,
        *,
        version: tuple[int, int] | None = None,
        flags: int = 0,
        **fields: int,
    ) -> None:
        self.deleted = 0
        self.calls: list[dict[str, Any]] = []
        self.capsule: Any = None
        sizes = (c_int64 * len(shape))(*shape)
        steps = None if strides is None else (c_int64 * len(strides))(*strides)
        self._kept = (sizes, steps)
        tensor = Tensor(data=data, device_type=CPU, ndim=len(shape), code=1, bits=8, lanes=1)
        tensor.shape = sizes
        if steps is not None:
            tensor.strides = steps
        for field, value in fields.items():
            setattr(tensor, field, value)
        deleter = Deleter(self._count)
        if version is None:
            self.managed: Legacy | Versioned = Legacy(tensor, None, deleter)
        else:
            self.managed = Versioned(*version, None, deleter, flags, tensor)

    def _count(self, _managed: int) -> None:
        self.deleted += 1

    def __dlpack_device__(self) -> tuple[int, int]:
        return self.managed.tensor.device_type, self.managed.tensor.device_id

    def _capsule(self) -> Any:
        _handed_out.append(self)
        name = b"dltensor" if isinstance(self.managed, Legacy) else b"dltensor_versioned"
        self.capsule = _new(ctypes.addressof(self.managed), name, None)
        return self.capsule

    def __dlpack__(self, **arguments: Any) -> Any:
        self.calls.append(arguments)
        return self._capsule()


class OldProducer(Producer):
    """From before DLPack 1.0: knows no keyword but stream."""

    def __dlpack__(self, stream: Any = None) -> Any:
        self.calls.append({})
        return self._capsule()
