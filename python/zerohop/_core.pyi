"""
The C++ core of zerohop.
"""

from __future__ import annotations
import typing
import typing_extensions

__all__: list[str] = ["ArrayView"]

class ArrayView:
    """
    An array as zerohop sees it: where its elements lie, without a copy.
    """
    def __dlpack__(
        self,
        *,
        stream: typing.Any = None,
        max_version: typing.Any = None,
        dl_device: typing.Any = None,
        copy: typing.Any = None,
    ) -> typing_extensions.CapsuleType: ...
    def __dlpack_device__(self) -> tuple[int, int]: ...
    def __getitem__(self, key: typing.Any) -> ArrayView:
        """
        A part of the same bytes, as numpy indexes it.
        """
    def __init__(self, array: typing.Any) -> None: ...
    def __repr__(self) -> str: ...
    @property
    def address(self) -> int: ...
    @property
    def contiguous(self) -> bool: ...
    @property
    def device(self) -> str: ...
    @property
    def dtype(self) -> str: ...
    @property
    def nbytes(self) -> int:
        """
        Bytes of all elements, gaps left out.
        """
    @property
    def shape(self) -> tuple[int, ...]: ...
    @property
    def strides(self) -> tuple[int, ...]:
        """
        Bytes from one element to the next, one value per dimension.
        """
    @property
    def why_read_only(self) -> str:
        """
        The reason, or an empty string for a writable array.
        """
    @property
    def writable(self) -> bool: ...
