"""
The C++ core of zerohop.
"""

from __future__ import annotations
import collections.abc
import numpy
import numpy.typing
import typing
import typing_extensions

__all__: list[str] = [
    "ArrayView",
    "AsyncEvent",
    "Barrier",
    "Bell",
    "CallLog",
    "CompletionQueue",
    "DEFAULT_CACHE_ENTRIES",
    "DEFAULT_MESSAGE_BYTES",
    "DEFAULT_MESSAGE_SLOTS",
    "DEFAULT_P2P",
    "DEFAULT_STAGING_CHUNK",
    "DEVICE_BOARD_NBYTES",
    "DEVICE_QUEUE_NBYTES",
    "Device",
    "DeviceBoard",
    "DeviceQueue",
    "Dial",
    "Endpoint",
    "Exchange",
    "GpuGroup",
    "GpuReducer",
    "Grant",
    "GroupPart",
    "Inquiry",
    "Lines",
    "Memory",
    "MemoryRegion",
    "MemorySlice",
    "OPS",
    "Peer",
    "ProtectionDomain",
    "QueuePair",
    "QueuePairAddress",
    "RemoteMemory",
    "Route",
    "SendRequest",
    "SharedReceiveQueue",
    "SmallCollectives",
    "Topology",
    "Transfer",
    "WC",
    "announce_exit",
    "ask",
    "available_memory",
    "bench_memory_ping_pong",
    "bench_message_ping_pong",
    "bench_notify",
    "bench_ping_pong",
    "bench_post",
    "bench_stream",
    "bench_tcp_ping_pong",
    "bench_tcp_stream",
    "bench_verbs_latency",
    "bench_verbs_ping_pong",
    "bench_verbs_receive",
    "bench_verbs_stream",
    "bench_wait_notify",
    "bench_write_many",
    "crc32c",
    "device_names",
    "dial",
    "end_context",
    "fault_words",
    "find_accepted",
    "find_notify",
    "forget_logs",
    "forget_recording",
    "gpu_count",
    "gpu_export_dmabuf",
    "gpu_facts",
    "gpu_memory",
    "has_kernels",
    "has_nvtx",
    "keep_times",
    "leave_wait",
    "outcome",
    "recv",
    "reduce",
    "report",
    "seconds",
    "send",
    "send_logs",
    "start_recording",
    "stop_recording",
    "take_logs",
    "verbs_devices",
    "why_no_reduction",
    "wire_text",
]

class AsyncEvent:
    """
    An asynchronous event of a device, port or queue.
    """
    def __repr__(self) -> str: ...
    @property
    def help(self) -> str:
        """
        What it means and what to do.
        """
    @property
    def port(self) -> int:
        """
        0 unless the event names a port.
        """
    @property
    def qp_num(self) -> int:
        """
        0 unless the event names a queue pair.
        """
    @property
    def type(self) -> str:
        """
        "QP_FATAL", "PORT_ERR", ...: ibv_event_type without its prefix.
        """

class MemoryRegion:
    """
    Registered bytes, made by ProtectionDomain.register (man ibv_reg_mr). Keeps its array alive.

    region[a:b] is a MemorySlice of bytes a to b.
    """
    def __getitem__(self, bytes: slice) -> MemorySlice:
        """
        Bytes begin to end. IndexError beyond the region.
        """
    def __len__(self) -> int: ...
    def __repr__(self) -> str: ...
    def close(self) -> None:
        """
        Deregister now: its keys are no longer valid, and work requests that still use it fail.
        """
    @property
    def access(self) -> int:
        """
        The Access flags it was registered with, as an int.
        """
    @property
    def address(self) -> int: ...
    @property
    def closed(self) -> bool: ...
    @property
    def lkey(self) -> int: ...
    @property
    def nbytes(self) -> int: ...
    @property
    def remote(self) -> tuple[int, int]:
        """
        (address, rkey): what a peer needs to reach the first byte.
        """
    @property
    def rkey(self) -> int: ...

class MemorySlice:
    """
    Bytes [offset, offset + nbytes) of a MemoryRegion.
    """
    def __repr__(self) -> str: ...
    @property
    def address(self) -> int: ...
    @property
    def nbytes(self) -> int: ...
    @property
    def offset(self) -> int: ...
    @property
    def region(self) -> MemoryRegion: ...
    @property
    def remote(self) -> tuple[int, int]:
        """
        (address, rkey): what a peer needs to reach the first byte.
        """

class Device:
    """
    An open verbs device and one of its ports (man ibv_open_device).

    name: "mlx5_0", "rxe0", "soft0", "soft0@eth0", "soft0@10.0.0.5". Raises VerbsError for other names.
    port: from 1; 0 (default) chooses the first that is active and has a GID. gid_index: to 255; -1 (default)
    chooses the GID that reaches farthest, RoCE v2 on Ethernet.
    """
    def __init__(
        self,
        name: str,
        *,
        port: typing.SupportsInt | typing.SupportsIndex = 0,
        gid_index: typing.SupportsInt | typing.SupportsIndex = -1,
    ) -> None: ...
    def __repr__(self) -> str: ...
    def async_event(
        self, timeout: typing.SupportsFloat | typing.SupportsIndex = 0.0
    ) -> AsyncEvent | None:
        """
        The next asynchronous event, or None when none comes within timeout seconds (man
        ibv_get_async_event).
        """
    def pd(self) -> ProtectionDomain:
        """
        A new protection domain on this device.
        """
    @property
    def attributes(self) -> dict[str, typing.Any]:
        """
        Limits of the device (man ibv_query_device); sizes in bytes.
        """
    @property
    def gid(self) -> str:
        """
        The address of the port, written as an IPv6 address.
        """
    @property
    def gid_index(self) -> int: ...
    @property
    def gid_kind(self) -> str:
        """
        "RoCE v2", "RoCE v1", "InfiniBand" or "unknown kind".
        """
    @property
    def mtu(self) -> int:
        """
        The active MTU of the port in bytes.
        """
    @property
    def name(self) -> str: ...
    @property
    def port(self) -> int: ...
    @property
    def port_attributes(self) -> dict[str, typing.Any]:
        """
        State of the port, queried now (man ibv_query_port); sizes in bytes.
        """
    @property
    def provider(self) -> str:
        """
        The implementation of the verbs table: "libibverbs" or "softhca".
        """
    @property
    def state(self) -> str:
        """
        The state of the port now: "ACTIVE", "DOWN", ...
        """

class ProtectionDomain:
    """
    Queue pairs and memory regions work together only inside one domain (man ibv_alloc_pd).
    """
    def __init__(self, device: Device) -> None: ...
    def __repr__(self) -> str: ...
    def register(
        self, array: typing.Any, *, access: typing.SupportsInt | typing.SupportsIndex | None = None
    ) -> MemoryRegion:
        """
        Register the bytes of an array, or of anything with the buffer protocol, without a copy.

        access: Access flags; by default everything for a writable array, REMOTE_READ for a read-only one.
        The region keeps the array alive. Raises RegistrationError when the memory cannot be pinned,
        BufferError for write access to a read-only array (man ibv_reg_mr).
        """
    @property
    def device(self) -> Device: ...

class WC:
    """
    A work completion: how one request ended (man ibv_poll_cq).
    """
    def __repr__(self) -> str: ...
    @property
    def byte_len(self) -> int:
        """
        Bytes that arrived (receives and reads); 0 on errors.
        """
    @property
    def help(self) -> str:
        """
        Cause and remedy of the status in one sentence.
        """
    @property
    def imm_data(self) -> int | None:
        """
        The immediate value received, or None.
        """
    @property
    def ok(self) -> bool: ...
    @property
    def opcode(self) -> str | None:
        """
        "RDMA_WRITE", "RECV", ...; None on errors.
        """
    @property
    def qp_num(self) -> int: ...
    @property
    def status(self) -> str:
        """
        "IBV_WC_SUCCESS" or the name of the error.
        """
    @property
    def vendor_err(self) -> int: ...
    @property
    def wr_id(self) -> int:
        """
        The number that the request was posted with.
        """

class CompletionQueue:
    """
    Where requests of queue pairs end (man ibv_create_cq).

    depth: how many completions fit; further ones are lost for good (CQ_ERR).
    """
    def __init__(
        self, device: Device, depth: typing.SupportsInt | typing.SupportsIndex = 256
    ) -> None: ...
    def __repr__(self) -> str: ...
    def arm(self) -> None:
        """
        Ask for one event at the next completion. Poll once more afterwards: a completion that arrived before this call
        gives no event (man ibv_req_notify_cq).
        """
    def poll(self, max: typing.SupportsInt | typing.SupportsIndex = 16) -> list[WC]:
        """
        The available completions, at most max of them; never waits.
        """
    def resize(self, depth: typing.SupportsInt | typing.SupportsIndex) -> None:
        """
        Change the depth (man ibv_resize_cq).
        """
    def wait(self, timeout: typing.SupportsFloat | typing.SupportsIndex = 30.0) -> bool:
        """
        Wait for the event that arm() requested; False when timeout seconds have passed.
        """
    @property
    def depth(self) -> int: ...

class SharedReceiveQueue:
    """
    Receives that all queue pairs made with it take from (man ibv_create_srq). depth: how many it holds.
    """
    def __init__(
        self, pd: ProtectionDomain, depth: typing.SupportsInt | typing.SupportsIndex = 64
    ) -> None: ...
    def post_receive(
        self, local: typing.Any = None, *, wr_id: typing.SupportsInt | typing.SupportsIndex = 0
    ) -> None:
        """
        Offer memory, one element, to the next incoming send of any of its queue pairs (man ibv_post_srq_recv). Hold the
        regions until it has ended. Raises VerbsError when the queue is full.
        """

class QueuePairAddress:
    """
    What the other side needs to connect: a plain value; to_bytes() may travel over any channel.
    """
    @staticmethod
    def from_bytes(encoded: bytes) -> QueuePairAddress:
        """
        Raises ProtocolError for anything that to_bytes() did not return.
        """
    def __eq__(self, other: typing.Any) -> bool: ...
    def __getstate__(self) -> bytes: ...
    def __hash__(self) -> int: ...
    def __repr__(self) -> str: ...
    def __setstate__(self, arg0: bytes) -> None: ...
    def to_bytes(self) -> bytes: ...
    @property
    def gid(self) -> str: ...
    @property
    def lid(self) -> int:
        """
        0 on RoCE and on the software HCA.
        """
    @property
    def mtu(self) -> int:
        """
        In bytes.
        """
    @property
    def number(self) -> int:
        """
        Queue pair number, 24 bits.
        """
    @property
    def psn(self) -> int:
        """
        First packet sequence number sent, 24 bits.
        """
    @property
    def reads_in(self) -> int:
        """
        Most reads and atomics that this side serves at once.
        """
    @property
    def reads_out(self) -> int:
        """
        Most reads and atomics that this side has outstanding.
        """

class QueuePair:
    """
    A reliable-connected (RC) queue pair, from RESET to RTS and back (man ibv_create_qp, ibv_modify_qp).

    cq takes the completions of both directions unless receive_cq is given. Depths count work requests, *_sge count
    scatter/gather elements; the device may grant more or less, see options. timeout: the local ACK timeout is
    4.096 us * 2**timeout; rnr_retries: 7 means for ever; rnr_timer: code of the pause that a receiver without
    posted receives requests (12: 0.64 ms). srq: a SharedReceiveQueue of the same pd, in place of receives of its own.
    """
    def __init__(
        self,
        pd: ProtectionDomain,
        cq: CompletionQueue,
        receive_cq: CompletionQueue | None = None,
        *,
        send_depth: typing.SupportsInt | typing.SupportsIndex = 256,
        receive_depth: typing.SupportsInt | typing.SupportsIndex = 64,
        send_sge: typing.SupportsInt | typing.SupportsIndex = 16,
        receive_sge: typing.SupportsInt | typing.SupportsIndex = 1,
        inline_bytes: typing.SupportsInt | typing.SupportsIndex = 64,
        timeout: typing.SupportsInt | typing.SupportsIndex = 14,
        retries: typing.SupportsInt | typing.SupportsIndex = 7,
        rnr_retries: typing.SupportsInt | typing.SupportsIndex = 7,
        rnr_timer: typing.SupportsInt | typing.SupportsIndex = 12,
        srq: SharedReceiveQueue | None = None,
    ) -> None: ...
    def __repr__(self) -> str: ...
    def address(self) -> QueuePairAddress:
        """
        The QueuePairAddress that the other side needs.
        """
    def connect(self, remote: QueuePairAddress) -> None:
        """
        RESET to RTS through init, rtr and rts.
        """
    def error(self) -> None:
        """
        To ERR: posted requests end with IBV_WC_WR_FLUSH_ERR.
        """
    def init(self, access: typing.SupportsInt | typing.SupportsIndex | None = None) -> None:
        """
        RESET to INIT; access: the remote operations that peers may do, as Access flags; by default all that the device supports.
        """
    def post_many(self, requests: collections.abc.Sequence[SendRequest]) -> None:
        """
        Post SendRequests as one chain with one doorbell. Raises VerbsError naming the first request that was not
        accepted; those before it were.
        """
    def post_receive(
        self, local: typing.Any = None, *, wr_id: typing.SupportsInt | typing.SupportsIndex = 0
    ) -> None:
        """
        Offer memory to one incoming send, or to one write_with_imm, which needs none (man ibv_post_recv).
        Hold the regions until it has ended.
        """
    def post_send(
        self,
        op: str,
        local: typing.Any = None,
        *,
        remote: tuple[
            typing.SupportsInt | typing.SupportsIndex, typing.SupportsInt | typing.SupportsIndex
        ]
        | None = None,
        imm: typing.SupportsInt | typing.SupportsIndex | None = None,
        add: int = 0,
        compare: int = 0,
        swap: int = 0,
        wr_id: typing.SupportsInt | typing.SupportsIndex = 0,
        signaled: bool = True,
        inline: bool = False,
        fence: bool = False,
    ) -> None:
        """
        Post one request; the arguments are those of SendRequest. Raises VerbsError when it is not accepted, for instance because the queue is full.
        """
    def reset(self) -> None:
        """
        To RESET: posted requests vanish without a completion.
        """
    def rtr(self, remote: QueuePairAddress) -> None:
        """
        INIT to RTR: receive from the queue pair at the remote address.
        """
    def rts(self, remote: QueuePairAddress) -> None:
        """
        RTR to RTS: send to it as well.
        """
    @property
    def number(self) -> int:
        """
        Queue pair number, 24 bits.
        """
    @property
    def options(self) -> dict[str, typing.Any]:
        """
        The options as the device granted them.
        """
    @property
    def state(self) -> str:
        """
        "RESET", "INIT", "RTR", "RTS", "SQD", "SQE" or "ERR", asked of the device.
        """

class SendRequest:
    """
    One work request for a send queue, to be posted by QueuePair.post_many (man ibv_post_send).

    op: "write", "write_with_imm", "read", "send", "send_with_imm", "fetch_add" or "compare_swap".
    local: a MemoryRegion, a slice of one, a sequence of those, or None for no bytes. The bytes go from
        there (write, send) or come to there (read; atomics: the 8 bytes of the old value).
    remote: (address, rkey) for write, read and atomics; atomics need an address that 8 divides.
    imm: 32-bit value of the *_with_imm operations, delivered in the receiver's WC.imm_data.
    add: for fetch_add; compare, swap: for compare_swap; modulo 2**64.
    wr_id: 64-bit number returned in WC.wr_id.
    signaled: whether a successful end shows in the completion queue; errors always do.
    inline: copy the bytes while posting; the memory may then be reused at once.
    fence: start only after all earlier reads and atomics have ended.

    Nothing is kept alive after posting: hold the regions until the request has ended.
    """
    def __init__(
        self,
        op: str,
        local: typing.Any = None,
        *,
        remote: tuple[
            typing.SupportsInt | typing.SupportsIndex, typing.SupportsInt | typing.SupportsIndex
        ]
        | None = None,
        imm: typing.SupportsInt | typing.SupportsIndex | None = None,
        add: int = 0,
        compare: int = 0,
        swap: int = 0,
        wr_id: typing.SupportsInt | typing.SupportsIndex = 0,
        signaled: bool = True,
        inline: bool = False,
        fence: bool = False,
    ) -> None: ...
    def __repr__(self) -> str: ...

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
    def reshape(self, *args) -> ArrayView:
        """
        The same bytes in another shape; ValueError as for ``Memory.reshape``.
        """
    def view(self, dtype: typing.Any) -> ArrayView:
        """
        The same bytes as elements of another dtype; ValueError as for ``Memory.view``.
        """
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
        Bytes of all elements, without gaps.
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

class RemoteMemory:
    """
    Memory of another Endpoint and the right to use it: a plain value.

    Comes from ``Memory.remote`` and travels as bytes (``to_bytes``), by pickle, or by name (``Endpoint.share`` and
    ``peer[name]``). It contains the key to the memory: send it only to peers that may use it. Slicing works as on
    ``Memory``. The key covers the whole registration that the array belongs to; ``Endpoint.register(array,
    cache=False)`` makes one that covers the array alone.
    """
    @staticmethod
    def from_bytes(data: bytes) -> RemoteMemory:
        """
        Raises ProtocolError for bytes that are not a RemoteMemory's.
        """
    def __array__(self, *args, **kwargs) -> typing.Any: ...
    def __dlpack__(self, *args, **kwargs) -> typing.Any: ...
    def __dlpack_device__(self, *args, **kwargs) -> typing.Any: ...
    def __eq__(self, arg0: typing.Any) -> bool: ...
    def __getitem__(self, arg0: typing.Any) -> RemoteMemory: ...
    def __getstate__(self) -> bytes: ...
    def __hash__(self) -> int: ...
    def __len__(self) -> int: ...
    def __repr__(self) -> str: ...
    def __setstate__(self, arg0: bytes) -> None: ...
    def _repr_html_(self) -> str:
        """
        For a notebook.
        """
    def reshape(self, *args) -> RemoteMemory:
        """
        The same memory in another shape, as in numpy; ValueError for memory with gaps.
        """
    def to_bytes(self) -> bytes: ...
    def view(self, dtype: typing.Any) -> RemoteMemory:
        """
        The same bytes as elements of another dtype; ValueError as for ``Memory.view``.
        """
    @property
    def access(self) -> str:
        """
        ``"read-write"`` or ``"read-only"``.
        """
    @property
    def address(self) -> int:
        """
        Address of the first element in the owner's process.
        """
    @property
    def device(self) -> str:
        """
        Its device: ``"cpu"`` or ``"cuda:0"``, as the owner counts.
        """
    @property
    def dtype(self) -> str:
        """
        Its name: ``"float32"``.
        """
    @property
    def endpoint_id(self) -> str:
        """
        The ``id`` of the Endpoint that owns it.
        """
    @property
    def itemsize(self) -> int:
        """
        Bytes of an element.
        """
    @property
    def nbytes(self) -> int:
        """
        Bytes of all elements, without gaps.
        """
    @property
    def ndim(self) -> int:
        """
        How many dimensions.
        """
    @property
    def shape(self) -> tuple:
        """
        Elements per dimension.
        """
    @property
    def strides(self) -> tuple:
        """
        Bytes from one element to the next, per dimension.
        """

class Memory:
    """
    A registered array: peers that have its ``remote`` can read and write its bytes.

    Made by ``Endpoint.register`` and ``Endpoint.empty``. Keeps the array alive. Slicing with integers, slices,
    ``...`` and ``None`` gives a part of the same memory, as in numpy's basic indexing. ``numpy.asarray(m)``,
    ``numpy.from_dlpack(m)`` and ``torch.from_dlpack(m)`` share its bytes; for GPU memory ``torch.from_dlpack(m)``
    and ``cupy.from_dlpack(m)``.
    """
    def __array__(self, dtype: typing.Any = None, copy: typing.Any = None) -> typing.Any:
        """
        The bytes as a numpy array. bfloat16 and float8 need the package ml_dtypes, else TypeError. Raises
        RegistrationError once closed.
        """
    def __dlpack__(
        self,
        *,
        stream: typing.Any = None,
        max_version: typing.Any = None,
        dl_device: typing.Any = None,
        copy: typing.Any = None,
    ) -> typing_extensions.CapsuleType:
        """
        The bytes as a DLPack capsule (array API 2024.12). For GPU memory: waits at most 30 s until the default stream
        has finished its current work, unless stream=-1.
        """
    def __dlpack_device__(self) -> tuple[int, int]: ...
    def __enter__(self) -> typing.Any: ...
    def __exit__(self, *args) -> None: ...
    def __getitem__(self, arg0: typing.Any) -> Memory:
        """
        A part of the same memory. Raises RegistrationError once closed.
        """
    def __len__(self) -> int: ...
    def __reduce__(self) -> tuple:
        """
        TypeError: it stays in its process; send ``m.remote``.
        """
    def __repr__(self) -> str: ...
    def __setitem__(self, arg0: typing.Any, arg1: typing.Any) -> None:
        """
        TypeError: assign to the array, ``numpy.asarray(m)[0] = 1``.
        """
    def _repr_html_(self) -> str:
        """
        For a notebook.
        """
    def close(self) -> None:
        """
        End the registration: peers can no longer access the memory. Running transfers finish first. Also closes the
        slices of this memory. Calling it again does nothing.
        """
    def reshape(self, *args) -> Memory:
        """
        The same memory in another shape, as in numpy: ``m.reshape(2, 3)``, ``m.reshape((2, -1))``. ValueError for
        memory with gaps, which would have to be copied. Raises RegistrationError once closed.
        """
    def view(self, dtype: typing.Any) -> Memory:
        """
        The same bytes as elements of another dtype (any that ``Endpoint.empty`` takes): ``m.view("float32")``. A
        different item size scales the last axis, which must then have no gaps. ValueError names the obstacle: gaps, or
        a last axis, an address or strides that the new item size does not divide. Raises RegistrationError once
        closed.
        """
    @property
    def address(self) -> int:
        """
        Address of the first element in this process.
        """
    @property
    def closed(self) -> bool:
        """
        Whether it is no longer registered.
        """
    @property
    def contiguous(self) -> bool:
        """
        Whether the elements lie in C order without gaps.
        """
    @property
    def device(self) -> str:
        """
        Its device: ``"cpu"`` or ``"cuda:0"``.
        """
    @property
    def dtype(self) -> str:
        """
        Its name: ``"float32"``.
        """
    @property
    def itemsize(self) -> int:
        """
        Bytes of an element.
        """
    @property
    def nbytes(self) -> int:
        """
        Bytes of all elements, without gaps.
        """
    @property
    def ndim(self) -> int:
        """
        How many dimensions.
        """
    @property
    def registration(self) -> str:
        """
        How it is registered: ``"host"``; for GPU memory ``"dmabuf"``, ``"peermem"`` or ``"staged"`` (through pinned
        host memory). ``peer.route(...)`` gives the reason.
        """
    @property
    def remote(self) -> RemoteMemory:
        """
        The ``RemoteMemory`` to send to a peer: its holder may read this memory, and write it if it is writable. Raises
        RegistrationError once closed.
        """
    @property
    def shape(self) -> tuple:
        """
        Elements per dimension.
        """
    @property
    def strides(self) -> tuple:
        """
        Bytes from one element to the next, per dimension.
        """
    @property
    def writable(self) -> bool:
        """
        Whether peers may write it.
        """

class Grant:
    """
    A revocable right to some memory, for peers: made by ``Endpoint.grant``. Leaving a ``with`` block revokes it;
    so does dropping it.
    """
    def __enter__(self) -> typing.Any: ...
    def __exit__(self, *args) -> None: ...
    def __repr__(self) -> str: ...
    def revoke(self) -> None:
        """
        Revoke it. When this returns, no holder of its ``remote`` reads or writes the memory any more: attempts are
        refused as for closed memory. That also holds if another thread, expiry or closing of the memory has begun to
        end it. Waits at most five seconds for copies of GPU memory that the Endpoint makes itself (route ``staged``);
        a copy that hangs is reported. Calling it again does nothing.
        """
    @property
    def remote(self) -> RemoteMemory:
        """
        The ``RemoteMemory`` to send to peers. Raises RegistrationError with the reason once the grant has ended.
        """
    @property
    def revoked(self) -> bool:
        """
        Whether it was revoked, has expired or its memory was closed, and no peer has access any more.
        """
    @property
    def writable(self) -> bool:
        """
        Whether it allows writing.
        """

class Route:
    """
    The route of a transfer's bytes, and why it was chosen.
    """
    def __repr__(self) -> str: ...
    def __str__(self) -> str: ...
    def _repr_html_(self) -> str:
        """
        For a notebook.
        """
    @property
    def device(self) -> str:
        """
        The device that serves it.
        """
    @property
    def kind(self) -> str:
        """
        ``"host"``: host memory over a queue pair. ``"gpudirect"``: the adapter reads and writes GPU memory
        by itself. ``"staged"``: GPU memory through pinned chunks of the host. ``"p2p"``: peer-mapped memory on one
        host, the default there.
        """
    @property
    def reason(self) -> str:
        """
        One sentence. Between two GPUs it names the number and speed of NVLinks (from NVML, with ``pip install
        zerohop[nvlink]``), or the kind of PCIe path (from /sys): looked up when first asked for.
        """
    @property
    def settings(self) -> dict[str, int | float | str | list[dict[str, int | float | str]]]:
        """
        The effective settings by name, for instance ``"mtu"`` in bytes: of the Endpoint and of the queue pair. The
        keywords of an Endpoint are explained there; rd_atomic is shown as rd_atomic_out and rd_atomic_in, what both
        ends agreed on; message_slots as message_slots_in, its own, and message_slots_out, the peer's; message_bytes is
        the smaller of both ends'. relaxed_ordering is what was requested: a kernel may silently ignore it. For an
        Endpoint on several devices ``"rails"`` is a list of dicts with the settings of each rail's queue pair (MTU,
        GID, reads, ...); the first that carries the transfer is also shown at the top level. Empty for the route of a
        Transfer: ask ``Peer.route``.
        """

class Transfer:
    """
    One asynchronous operation. When it is done without error the source may be reused and the bytes are at the
    destination. Dropping it changes nothing: the transfer continues, and keeps its memory alive.

    ``await transfer`` is ``transfer.wait()`` for asyncio. ``asyncio.gather(a, b)`` and ``asyncio.wait_for(a, 5)``
    take transfers as they are; for a task, ``asyncio.ensure_future(a)`` (create_task wants a coroutine).
    Cancelling ends the waiting, not the transfer.
    """
    def __await__(self) -> typing.Any: ...
    def __repr__(self) -> str: ...
    def _repr_html_(self) -> str:
        """
        For a notebook.
        """
    def wait(
        self, timeout: typing.SupportsFloat | typing.SupportsIndex | None = None
    ) -> typing.Any:
        """
        Wait until done, at most ``timeout`` seconds (default: the Endpoint's). Any number of threads may wait.

        Returns the old value for ``fetch_add`` and ``compare_swap``, the number of bytes for ``recv``, else None.
        Raises TransferTimeout when the time is over (the transfer continues), or the error that ended the transfer:
        PeerLost, VerbsError, ... whose ``effect`` states what may have been written.
        """
    def wait_on(
        self, stream: typing.Any, timeout: typing.SupportsFloat | typing.SupportsIndex | None = None
    ) -> Transfer:
        """
        Make a GPU stream wait for this transfer: later work of the stream begins once it is done. The call itself does
        not wait. stream: as for ``Peer.write``, of any GPU of this process.

        Returns a Transfer that is done when the stream continues. The stream waits at most `timeout` seconds (default:
        the Endpoint's), counted from when it reaches the wait. If the transfer is not done by then, or fails, the
        stream continues anyway: a RuntimeWarning reports it, and wait() of the returned Transfer raises
        TransferTimeout, or the error that ended the transfer. If the transfer has failed already, raises its error at
        once; RouteUnavailable (no GPU), CudaError. The wait is a kernel of one thread.

        While the stream is being captured into a CUDA graph, the wait becomes part of the graph. A Transfer that is
        itself part of a graph orders another stream of the same capture behind it; once the capture has ended,
        RouteUnavailable.
        """
    @property
    def done(self) -> bool:
        """
        Whether it has ended, with or without error. Never blocks.
        """
    @property
    def nbytes(self) -> int:
        """
        Bytes of all its arrays; for a recv, the room.
        """
    @property
    def route(self) -> Route:
        """
        The route it takes.
        """
    @property
    def timeout(self) -> float:
        """
        Default bound of a wait, in seconds: the Endpoint's.
        """
    @property
    def times(self) -> dict[str, float] | None:
        """
        Times of its stages in seconds of ``time.monotonic()``, or None if it was begun while ``zh.keep_times()`` was
        off, the default. A dict: ``"asked"``, when the call made it; ``"begun"``, when a device, a CPU or a GPU first
        got a part of it to move (a GPU may have other work to do first); ``"ended"``, when it was done, with or
        without error. Stages not reached yet are missing, as is ``"begun"`` where this process moves nothing: a recv
        whose bytes came with the message.
        """

class Peer:
    """
    The connection to one remote Endpoint, made by ``Endpoint.connect`` or ``Endpoint.accept``.

    When the peer dies, hangs or leaves, every pending and later operation raises PeerLost within 5 seconds. An
    operation that fails otherwise (for example because the peer has closed the memory) also fails those in flight;
    later ones work again.
    """
    def __contains__(self, name: str) -> bool:
        """
        Whether the peer shares memory under `name` now. Asks the peer, like peer[name].
        """
    def __getitem__(self, name: str) -> RemoteMemory:
        """
        The memory the peer shares under `name`; KeyError if it shares none.
        """
    def __iter__(self) -> collections.abc.Iterator[str]: ...
    def __repr__(self) -> str: ...
    def _repr_html_(self) -> str:
        """
        For a notebook.
        """
    def close(self, timeout: typing.SupportsFloat | typing.SupportsIndex | None = None) -> None:
        """
        Let posted operations finish, at most `timeout` seconds (default: the Endpoint's), then leave. The other side
        sees PeerLost. Calling it again does nothing. What has not finished by then ends with PeerLost, and the logger
        zerohop.transfer records how much that was.

        A send() of more than 16384 bytes is posted as an offer; its bytes leave when the other side calls recv(), and
        close() does not wait for that. A send still without a recv is dropped: its Transfer ends with PeerLost, and
        close() gives a RuntimeWarning. Wait for the Transfer first.
        """
    def compare_swap(
        self,
        remote: RemoteMemory,
        expected: typing.SupportsInt | typing.SupportsIndex,
        desired: typing.SupportsInt | typing.SupportsIndex,
    ) -> Transfer:
        """
        Replace one remote 8-byte element by `desired` if it equals `expected`, atomic like fetch_add(); wait() returns
        the old value, which shows whether it did.
        """
    def device_queue(
        self,
        local: typing.Any,
        remote: RemoteMemory,
        *,
        hears: str = "both",
        way: str = "auto",
        send_queue: str = "host",
        completion_queue: str = "host",
        timeout: typing.SupportsFloat | typing.SupportsIndex | None = None,
    ) -> DeviceQueue:
        """
        Lets kernels of `local`'s GPU put, get and notify on their own. Both arrays are contiguous, and the local one
        lies on a GPU. The ways (``DeviceQueue.way`` and ``.route`` show which one is used, and why not another):

        - ``"mapped"``: loads and stores, without the CPU. The other process must be on this host, and its memory must
          be on a GPU in a single chunk (as from ``Endpoint.empty()`` or cudaMalloc). It stays mapped until the queue
          is closed; a peer that closes that memory or the connection waits for this, at most five seconds.
        - ``"proxy"``: in all other cases, to GPU and host memory alike. Kernels write entries into a ring, and a
          thread of this process executes them like the Peer's other transfers through devices. The thread polls the
          ring continuously while there is work, and every millisecond after a second without any.
        - ``"direct"``, only on request: kernels write entries into the send queue of their own queue pair, ring its
          doorbell and poll its completions themselves (GPU-initiated RDMA). Works with ``soft0``; on mlx5 adapters it
          is verified in simulation alone. The device must reach both arrays. For an adapter's doorbell the driver needs
          ``options nvidia NVreg_RegistryDwords="PeerMappingOverride=1;"``.
        - ``"auto"`` (default): ``"mapped"``, else ``"proxy"``.

        hears: who receives notifications that kernels put through mapped memory: the peer's kernels and streams
        (``"gpu"``), its ``wait_notify`` (``"cpu"``), or ``"both"``, which costs a kernel that notifies repeatedly half
        a microsecond more each time. Those notifications wake nobody, nor do a direct queue's: a CPU that sleeps in
        wait_notify polls every millisecond. By the other ways both receive them.

        send_queue, completion_queue: where these rings of a direct queue lie: in host memory (``"host"``, default) or in
        that of `local`'s GPU (``"gpu"``), where kernels write entries and read completions locally. On an mlx5 adapter
        the GPU takes DEVX (rdma-core 35, for dma-bufs 43) and dma-bufs or nvidia-peermem; soft0 reads and writes there
        by copies.

        timeout: bound in seconds of this call, and default bound of a kernel's calls (default: the Endpoint's). Raises
        RouteUnavailable, ValueError (unsuitable arrays), PeerLost, CudaError, RegistrationError, TransferTimeout.
        """
    def fetch_add(
        self, remote: RemoteMemory, value: typing.SupportsInt | typing.SupportsIndex
    ) -> Transfer:
        """
        Add to one remote 8-byte element (int64 or uint64, aligned to 8); wait() returns the old value. Atomic with all
        other operations of the peer's device, but not with kernels that access an element on a GPU meanwhile. Overflow
        wraps.
        """
    def lookup(
        self, name: str, timeout: typing.SupportsFloat | typing.SupportsIndex | None = None
    ) -> RemoteMemory:
        """
        The memory the peer shares under `name`; waits for it to be shared, at most `timeout` seconds (default: the
        Endpoint's). Raises TransferTimeout, PeerLost.
        """
    def notify(
        self,
        slot: typing.SupportsInt | typing.SupportsIndex,
        value: typing.SupportsInt | typing.SupportsIndex,
        *,
        stream: typing.Any = None,
        timeout: typing.SupportsFloat | typing.SupportsIndex | None = None,
    ) -> Transfer:
        """
        Put a value (1 to 2**32 - 1) into a slot (0 to 65535) of the peer's notification board, where wait_notify()
        finds it. It becomes visible only after the data of all write() calls made earlier. When the Transfer is done
        it is in flight, and becomes visible a moment later. A slot holds one value: a later one replaces one that was
        not taken.
        stream: as for write(): on one host the GPU of the stream puts the value when the stream gets there, behind the
        stream's earlier work; otherwise the call waits for that, at most `timeout` seconds.

        Raises IndexError (slot), ValueError (value), PeerLost; with stream= also RouteUnavailable, CudaError,
        TransferTimeout.
        """
    def read(
        self,
        source: RemoteMemory,
        destination: typing.Any,
        *,
        notify: typing.Any = None,
        stream: typing.Any = None,
        require: str | None = None,
        timeout: typing.SupportsFloat | typing.SupportsIndex | None = None,
    ) -> Transfer:
        """
        Read a remote array into a local one of the same shape and dtype (RDMA read). With notify the peer is notified
        once the data has arrived here. Otherwise as write().
        """
    def read_many(
        self,
        pairs: collections.abc.Iterable,
        *,
        notify: typing.Any = None,
        stream: typing.Any = None,
        require: str | None = None,
        timeout: typing.SupportsFloat | typing.SupportsIndex | None = None,
    ) -> Transfer:
        """
        Read many arrays as one Transfer. pairs: as for write_many, but (RemoteMemory, Memory or array).
        """
    def read_pages(
        self,
        source: RemoteMemory,
        destination: typing.Any,
        source_pages: typing.Any,
        destination_pages: typing.Any,
        *,
        notify: typing.Any = None,
        stream: typing.Any = None,
        require: str | None = None,
        timeout: typing.SupportsFloat | typing.SupportsIndex | None = None,
    ) -> Transfer:
        """
        Read many parts of a remote array, along its first axis, into parts of a local one, as one Transfer:
        source[source_pages[k]] into destination[destination_pages[k]] for every k. Indices as for write_pages(),
        otherwise as read().
        """
    def recv(
        self, array: typing.Any, tag: typing.SupportsInt | typing.SupportsIndex = 0
    ) -> Transfer:
        """
        Receive the next message of that tag into an array (or Memory); wait() returns its number of bytes.

        A shorter message fills the beginning of a contiguous array. One that does not fit raises ValueError and stays
        for another recv.
        """
    def route(self, local: typing.Any, remote: RemoteMemory) -> Route:
        """
        The route of bytes between the two, and why; where it is not p2p, why not. A transfer may still go through the
        device, as its own ``route`` then shows: when a device has earlier work with the peer to finish.

        Raises PeerLost, RegistrationError (`local` is closed), RouteUnavailable (there is none).
        """
    def send(
        self, array: typing.Any, tag: typing.SupportsInt | typing.SupportsIndex = 0
    ) -> Transfer:
        """
        Send an array (or Memory) to a matching recv of the peer, in order for each tag (0 to 2**32 - 1).

        Up to 16384 bytes are copied, and done when they are in the peer's memory; larger arrays stay in place until
        the peer's recv has read them. Bytes are matched, not shapes or dtypes.
        """
    def stats(self) -> dict:
        """
        Counters since the connection was made, as a dict of ints, and two lists, "routes" and "rails". Reading them
        does not slow transfers. Later versions may add keys; the present ones stay.

        work_requests, doorbells: work requests posted to the device, and doorbells rung. bytes_out, bytes_in: of the
        writes and sends, and of the reads, that were posted. messages_in, notifications_in: received from the peer
        through the device. queue_full: how often a call waited for room. queue_pair_errors: how often the queue pair
        had to be replaced.

        "routes": what this process began, a dict for each route and device that it may take or has taken: "route" and
        "device" (strs, as in a Route: p2p over cpu is between host memories, p2p over cuda:0 is what that GPU of this
        process copies); writes, reads, atomics, sends, recvs: how many were begun; notifications_out: put after data,
        or alone; bytes_out (of writes and sends) and bytes_in (of reads, and of recvs that have ended); failures:
        ended with an error; under_way: begun and not ended; latency: durations of those that ended without an error,
        as below; chunks_mapped, nbytes_mapped: of the peer's GPU memory, for the p2p of this GPU, now. What the peer
        writes and reads here is in its own stats().

        "latency": a dict by operation, "write", "read", "atomic", "send", "recv" and "notify" (a notification alone),
        of those that occurred. Each is a dict in seconds, from posting to the moment at which this process saw it done
        (for a recv: until a message arrived). Copies and notifications that the CPU makes within the call are sampled,
        one in eight, after the first 1024. Keys: count, sum, p50, p90, p99 (percentiles, assuming an even spread
        within each bucket), and buckets: pairs of an upper bound in seconds (inclusive) and the count above the next
        lower bound; two buckets for each power of two from 64 ns to 68.7 s, without empty ones; the bound of the last
        is inf.

        "rails": a dict for each device, with the counters described first and: "device", its name; "serves", whether
        it carries transfers now; "trouble", why it does not (a str, empty if it does); and nbytes_registered, the memory
        registered with the device for results of atomics of this Peer.

        "p2p", a dict, exists for a peer on the same host unless one of the two Endpoints has p2p=0: bytes_out and
        bytes_in, copied without a device (and included in the sums above); unanswered, how often the peer did not
        report in time where its memory is, so that a device took over; and nbytes_page_locked, host memory page-locked
        now for copies of GPUs, by this process for all its Peers.
        """
    def write(
        self,
        source: typing.Any,
        destination: RemoteMemory,
        *,
        notify: typing.Any = None,
        stream: typing.Any = None,
        require: str | None = None,
        timeout: typing.SupportsFloat | typing.SupportsIndex | None = None,
    ) -> Transfer:
        """
        Write a local array into a remote one of the same shape and dtype (RDMA write).

        source: Memory, or an array, which is registered for this call. destination: RemoteMemory.
        notify: (slot, value) to put on the peer's notification board after the data, slot 0 to 65535, value 1 to 2**32
        - 1. When the Transfer is done the data has arrived; the notification becomes visible a moment later. A slot
        holds one value: a later one replaces one that was not taken.
        require: the only kind of route to take, for instance "host"; RouteUnavailable gives the reason why not.
        timeout: seconds that a full queue may block this call (default: the Endpoint's); the transfer is accepted even
        then.
        stream: of the GPU of the local array, or, if that is in host memory, of any GPU that reaches the peer's: one
        of PyTorch, CuPy or Numba, any object with ``__cuda_stream__``, or a handle as an int (0 or 1: the legacy
        default stream). By p2p from or to a GPU array, data and notification are enqueued into that stream, and the
        call does not wait: the transfer begins when the stream reaches it, and later work of the stream begins after
        it. It follows earlier calls without a stream; calls in different streams are not ordered. On the other routes
        the call waits, at most `timeout` seconds, until the stream has finished its work so far.
        While the stream is being captured into a CUDA graph, the call becomes part of the graph, by p2p from or to a
        GPU array; otherwise RouteUnavailable says why it cannot. Each replay then transfers what the arrays hold by
        then. Of the notifications that replays put into a slot, the first has the given value, and each later one the
        next (after 2**32 - 1 comes 1).
        Without stream= a transfer begins after the earlier work of the default stream of the array's GPU: by p2p
        without blocking; on the other routes the call waits for that work.

        Returns a Transfer; in a capture one whose wait() raises Error, as it has no result of its own. Raises PeerLost,
        RegistrationError (closed memory), RouteUnavailable, CudaError, TransferTimeout (the default stream), ValueError (shapes, dtypes or rights that do not fit).
        """
    def write_many(
        self,
        pairs: collections.abc.Iterable,
        *,
        notify: typing.Any = None,
        stream: typing.Any = None,
        require: str | None = None,
        timeout: typing.SupportsFloat | typing.SupportsIndex | None = None,
    ) -> Transfer:
        """
        Write many arrays as one Transfer, with one doorbell for up to 32 work requests.

        pairs: list, generator, ... of (Memory or array, RemoteMemory). Otherwise as write(); the notification follows the last.
        """
    def write_pages(
        self,
        source: typing.Any,
        destination: RemoteMemory,
        source_pages: typing.Any,
        destination_pages: typing.Any,
        *,
        notify: typing.Any = None,
        stream: typing.Any = None,
        require: str | None = None,
        timeout: typing.SupportsFloat | typing.SupportsIndex | None = None,
    ) -> Transfer:
        """
        Write many parts of a local array, along its first axis, to parts of a remote one, as one Transfer:
        source[source_pages[k]] to destination[destination_pages[k]] for every k. This moves the blocks of a paged KV
        cache without an object for each; of the calls for many blocks it is the fastest.

        source: Memory, or an array. destination: RemoteMemory. A page, array[i], has the same shape and dtype in both;
        it may be strided. source_pages, destination_pages: equally many indices, from 0; negative ones do not count
        from the end. Each is an array of int32, int64, uint32 or uint64 with one axis in host memory (buffer protocol
        or DLPack), any sequence of ints, or None for all pages in order. They are copied: later changes have no
        effect. Destination pages must not repeat: which of the pages written to one remains is undefined, and this is
        not checked. Otherwise as write(); the notification follows the last page.

        Raises IndexError (an index, with its position and the bound), ValueError (page shapes or numbers of indices
        that differ; indices with several axes), TypeError (indices of another type, or in GPU memory: pass .cpu()),
        and what write() raises.
        """
    @property
    def alive(self) -> bool:
        """
        Whether it is connected; False once it is lost, and in a forked child.
        """
    @property
    def host(self) -> str:
        """
        The name of its process's host.
        """
    @property
    def id(self) -> str:
        """
        The ``id`` of its Endpoint, hexadecimal.
        """
    @property
    def name(self) -> str:
        """
        The ``name`` of its Endpoint.
        """
    @property
    def pid(self) -> int:
        """
        The id of its process, on its host.
        """
    @property
    def timeout(self) -> float:
        """
        Default bound of a wait, in seconds: the Endpoint's.
        """
    @property
    def why_lost(self) -> str | None:
        """
        Why it was lost, such as ``'its process has ended'``; None while connected, and in a forked child.
        """

class Endpoint:
    def __init__(
        self,
        device: str,
        name: str,
        timeout: typing.SupportsFloat | typing.SupportsIndex,
        spin: typing.SupportsFloat | typing.SupportsIndex,
        host: str,
        registration: str,
        knobs: collections.abc.Mapping[str, typing.SupportsInt | typing.SupportsIndex],
        nearest: collections.abc.Mapping[str, typing.SupportsInt | typing.SupportsIndex],
        preferred: collections.abc.Sequence[str],
        preference: str,
        faults: str = "",
    ) -> None: ...
    def _faults_text(self) -> str:
        """
        The words of the faults set; empty: none.
        """
    def _put_faults(self, text: str) -> None:
        """
        Sets faults from text.
        """
    def _repr_html_(self) -> str:
        """
        For a notebook.
        """
    def accept(self, timeout: typing.SupportsFloat | typing.SupportsIndex | None = None) -> Peer:
        """
        The next Peer that connected to this Endpoint and was not returned before. Raises TransferTimeout.
        """
    def close(self, timeout: typing.SupportsFloat | typing.SupportsIndex | None = None) -> None:
        """
        Let posted operations finish, at most `timeout` seconds (default: the Endpoint's), leave every peer and stop.
        Calling it again does nothing. RuntimeWarning: it dropped a send(), as Peer.close() explains.
        """
    def connect(
        self, address: bytes, timeout: typing.SupportsFloat | typing.SupportsIndex | None = None
    ) -> Peer:
        """
        Connect to the Endpoint with that address (bytes) and return its Peer; if the two are connected already, the
        existing one. Both sides may call it at once.

        Raises TransferTimeout (no answer within `timeout` seconds; default: the Endpoint's), PeerLost (refused),
        AuthenticationError (the secret does not match), ProtocolError (damaged address).
        """
    def device_board(
        self,
        first: typing.SupportsInt | typing.SupportsIndex,
        count: typing.SupportsInt | typing.SupportsIndex = 1,
        *,
        device: str = "cuda:0",
        timeout: typing.SupportsFloat | typing.SupportsIndex | None = None,
    ) -> DeviceBoard:
        """
        `count` slots from `first` on, for kernels of `device` to wait on. Until it is closed, notifications that GPUs
        put there belong to kernels, and calls that wait or poll do not see them.

        Raises RouteUnavailable (no CUDA driver, built without kernels, a GPU that does not reach the board),
        IndexError (slots), ValueError (no slot, not a GPU's name), CudaError (no such GPU, or it failed),
        TransferTimeout (a kernel keeps the GPU busy for `timeout` seconds; default: the Endpoint's), and Error once
        closed.
        """
    def empty(
        self,
        shape: typing.Any,
        dtype: typing.Any = "uint8",
        device: str = "cpu",
        *,
        registration: str | None = None,
    ) -> Memory:
        """
        Fresh zeroed registered memory. shape: int or tuple. dtype: what numpy.dtype() takes ("float32", "f4", float,
        numpy.float32), or a dtype of torch or ml_dtypes, or its name ("bfloat16", "float8_e4m3fn"). device: ``"cpu"``
        or ``"cuda:<ordinal>"``, or a torch.device; GPU memory can be shared with other processes and, where the GPU
        supports it, accessed by adapters (cuMemCreate), and is allocated in pages of 2 MiB:
        ``torch.from_dlpack(memory)`` or ``cupy.from_dlpack`` is its array. It lives as long as that array or the
        Memory, and then until the GPU has finished its current work.
        Do not drop it while a stream is being captured into a CUDA graph: like cudaFree, that invalidates the capture.
        registration: of GPU memory, as for register().

        Raises RegistrationError (no memory, no NVIDIA driver, a device that cannot reach it), CudaError (no such
        GPU, no room on it), TransferTimeout (other work kept the GPU from zeroing it for the Endpoint's timeout),
        TypeError and ValueError (shape, dtype, device).
        """
    def grant(
        self,
        memory: Memory,
        *,
        writable: bool = False,
        timeout: typing.SupportsFloat | typing.SupportsIndex | None = None,
    ) -> Grant:
        """
        The right to read some memory of this Endpoint, revocable while the memory stays registered: a ``Grant``.

        memory: Memory, or a slice of one; a separate key reaches from its first to its last byte.
        writable: whether peers may also write it, and use atomics.
        timeout: seconds after which it expires; None: never.

        Revocable memory is never mapped by processes of this host: they too access it through a device, which is
        slower than the route p2p. The grant ends when its Memory is closed. Raises RegistrationError, TypeError,
        ValueError (more than the memory itself allows).
        """
    def notify(
        self,
        slot: typing.SupportsInt | typing.SupportsIndex,
        value: typing.SupportsInt | typing.SupportsIndex,
    ) -> None:
        """
        Put a value (1 to 2**32 - 1) into a slot (0 to 65535) of this Endpoint's own board, as a peer's ``Peer.notify``
        does: it is visible at once, and wakes waiting threads. It is not ordered with the writes of peers.

        Raises IndexError (slot), ValueError (value).
        """
    def peek_notify(self, slot: typing.SupportsInt | typing.SupportsIndex) -> int:
        """
        The value in the slot, 0 if it is empty. Never blocks.
        """
    def register(
        self,
        array: typing.Any,
        *,
        writable: bool | None = None,
        cache: bool = True,
        registration: str | None = None,
    ) -> Memory:
        """
        Register an array, without a copy: numpy, torch, jax, or anything with ``__dlpack__`` or the buffer protocol.

        writable: whether peers may write it (default: if the array is writable).
        cache: reuse a registration that covers the array; its key then reaches all that the registration covers. With
        False the key reaches the array and nothing more.
        registration: how GPU memory is registered: ``"dmabuf"``, ``"peermem"`` or ``"staged"`` (not with the device:
        this Endpoint copies through pinned host memory); if that is not possible, RegistrationError states the reason.
        Or ``"auto"``: the first that works (on soft0, which copies itself, also ``"staged"``). Default: the Endpoint's
        ``registration``. ``Memory.registration`` is the one used.
        The first array registered (or allocated by empty()) on a GPU loads the kernels there and takes 2 MiB of its
        memory.

        Returns Memory, which keeps the array alive. The storage of a PyTorch CPU tensor can never be resized
        afterwards; a RuntimeWarning reports if PyTorch cannot be kept from it. Raises RegistrationError, TypeError,
        ValueError.
        """
    def reset_notify(self, slot: typing.SupportsInt | typing.SupportsIndex) -> int:
        """
        Empty the slot and return its value, 0 if it was empty. Never blocks.
        """
    def share(self, name: str, memory: Memory) -> None:
        """
        Publish memory: peers find it by ``peer[name]`` and ``peer.lookup(name)``. Replaces any memory of that name.
        """
    def stats(self) -> dict:
        """
        Counters of all current and former Peers of this Endpoint, lost and closed ones included: a dict with "peers",
        the number now connected; "routes", a list as in Peer.stats(), with one dict for each route and device, summed
        over all Peers; and "connections", a list of dicts: first one for each of the last 64 names of peers whose
        connections have ended, oldest first, then one for each current connection. Their keys: "peer", the name;
        "ended", None or a str with the reason why the last connection of that name ended; and "routes", as before but
        without what is mapped. Also available after close(). Reading them does not slow transfers.

        "faults" is a dict with the number of times each injected fault (zh.Faults) has happened, empty if none has;
        corrupt_found and duplicate_found are packets of peers that were dropped. "nbytes_registered" is the memory registered with
        devices for messages (message_slots, message_bytes), which all Peers share; 0 once closed.
        """
    def unshare(self, name: str) -> None:
        """
        Stop publishing it; KeyError if nothing has that name. Peers that have its RemoteMemory keep the right: close
        the Memory to end that.
        """
    @typing.overload
    def wait_notify(
        self,
        slot: typing.SupportsInt | typing.SupportsIndex,
        timeout: typing.SupportsFloat | typing.SupportsIndex | None = None,
        reset: bool = True,
        *,
        stream: None = None,
    ) -> int:
        """
        Wait until a peer has put a value into the slot (0 to 65535) and return it; data written before it has arrived.
        reset: also empty the slot. A slot holds one value: of several puts, the last.

        Raises TransferTimeout after `timeout` seconds (default: the Endpoint's), PeerLost (the last peer has left, and
        the slot is empty), IndexError (slot).
        """
    @typing.overload
    def wait_notify(
        self,
        slot: typing.SupportsInt | typing.SupportsIndex,
        timeout: typing.SupportsFloat | typing.SupportsIndex | None = None,
        reset: bool = True,
        *,
        stream: typing.Any,
    ) -> Transfer:
        """
        With stream= (as for ``Peer.write``, of any GPU of this process) the call does not wait: the stream does. Later
        work of the stream begins when a peer has put a value into the slot, and sees what was written before that.
        Returns a Transfer, done about 0.1 ms after the stream continues; its wait() returns the value. What GPUs put
        into the slot meanwhile belongs to the stream, not to calls that wait or poll without one.

        The stream waits at most `timeout` seconds, counted from when it reaches the wait. It continues anyway if
        nothing arrived by then, or no peer is left that could notify: a RuntimeWarning reports it, and wait() of the
        Transfer raises TransferTimeout or PeerLost. The wait is a kernel of one thread, which always ends; the
        driver's own operation would not. Where the GPU has no atomics with host memory, a value that replaces another
        at the very moment when a stream takes that one is lost: use a separate slot for each outstanding value.

        While the stream is being captured into a CUDA graph, the wait becomes part of the graph, and each replay takes
        the next notification. Those that replays of a peer's graph put are taken one by one, even if several came
        before. As long as the graph exists, the slot is for graphs alone. wait() of the Transfer raises Error, as it
        has no result of its own; a replay that waited in vain is reported by a RuntimeWarning, and the next call of
        wait_notify() with stream= raises its error. Raises RouteUnavailable (reset=False in a capture; a slot that a
        graph waits for; built without kernels), CudaError, IndexError.
        """
    def wait_notify_any(
        self,
        first: typing.SupportsInt | typing.SupportsIndex,
        count: typing.SupportsInt | typing.SupportsIndex,
        timeout: typing.SupportsFloat | typing.SupportsIndex | None = None,
        reset: bool = True,
    ) -> tuple[int, int]:
        """
        Wait for any slot of [first, first + count); returns (slot, value). Otherwise as wait_notify().
        """
    @property
    def address(self) -> bytes:
        """
        What another Endpoint needs to connect: bytes. Contains a secret.
        """
    @property
    def closed(self) -> bool:
        """
        Whether close() was called.
        """
    @property
    def device(self) -> str:
        """
        The verbs device, for instance ``"soft0"``; several are separated by commas.
        """
    @property
    def device_events(self) -> list[dict]:
        """
        Asynchronous events of the devices, newest last, at most 64: dicts of ``time`` (seconds since the epoch),
        ``device``, ``type`` (``"PORT_ERR"``: man ibv_get_async_event), ``port`` (0: none), ``peer`` (whose queue pair
        it concerns, else ``""``) and ``message``, with the remedy. Events that mean trouble for a device or a port are
        also RuntimeWarnings. Empty once closed.
        """
    @property
    def id(self) -> str:
        """
        A globally unique id, hexadecimal; not a secret.
        """
    @property
    def name(self) -> str:
        """
        For messages, here and at its peers.
        """
    @property
    def peers(self) -> list[Peer]:
        """
        The Peers that are connected now.
        """
    @property
    def registration_cache(self) -> dict:
        """
        Counters of the registrations of GPU memory, by name: ``hits`` and ``misses`` of look-ups, ``evictions`` of
        unused ones for lack of room (knob ``registration_cache``), ``stale`` ones whose memory had been freed, and the
        current ``entries`` and ``nbytes``, of which ``unused`` and ``unused_nbytes`` are not in use.
        """
    @property
    def timeout(self) -> float:
        """
        Default bound of a wait, in seconds.
        """

class Dial:
    """
    A connect() in progress; dropping it cancels it. See zerohop.aio.
    """
    @property
    def done(self) -> bool: ...

class Inquiry:
    """
    A lookup() in progress. See zerohop.aio.
    """
    @property
    def done(self) -> bool: ...

class Bell:
    """
    Wakes an event loop; see zerohop.aio.
    """
    def __init__(self) -> None: ...
    def drain(self) -> list[int]: ...
    def fileno(self) -> int: ...
    @typing.overload
    def watch(self, what: Transfer, token: typing.SupportsInt | typing.SupportsIndex) -> int: ...
    @typing.overload
    def watch(self, what: Dial, token: typing.SupportsInt | typing.SupportsIndex) -> int: ...
    @typing.overload
    def watch(self, what: Inquiry, token: typing.SupportsInt | typing.SupportsIndex) -> int: ...
    def watch_accept(
        self, endpoint: Endpoint, token: typing.SupportsInt | typing.SupportsIndex
    ) -> int: ...
    def watch_slots(
        self,
        endpoint: Endpoint,
        first: typing.SupportsInt | typing.SupportsIndex,
        count: typing.SupportsInt | typing.SupportsIndex,
        token: typing.SupportsInt | typing.SupportsIndex,
    ) -> int: ...

class CallLog:
    """
    The calls of a rank, in memory that other ranks read: 64 records of 64 bytes, zero-initialized. See
    zerohop.history. A row is (position, number, digest, kind, root, nbytes, dtype, op); nbytes is None where ranks
    may differ in it; op is 0 without a reduction. KINDS: the names of the kinds of calls.
    """

    KINDS: typing.ClassVar[tuple] = (
        "broadcast",
        "scatter",
        "gather",
        "all_gather",
        "all_to_all",
        "send_recv",
        "reduce",
        "all_reduce",
        "reduce_scatter",
        "scan",
        "barrier",
    )
    @staticmethod
    def rows_in(memory: bytes) -> list[tuple[int, int, int, int, int, int | None, str, int]]:
        """
        The same for another rank's log.
        """
    def __init__(self, memory: typing.Any) -> None: ...
    def add(
        self,
        kind: typing.SupportsInt | typing.SupportsIndex,
        root: typing.SupportsInt | typing.SupportsIndex,
        nbytes: typing.SupportsInt | typing.SupportsIndex | None,
        dtype: str,
        op: typing.SupportsInt | typing.SupportsIndex = 0,
        factor: typing.SupportsFloat | typing.SupportsIndex = 1.0,
    ) -> tuple[int, int, int, int, int, int | None, str, int]:
        """
        Numbers it: collectives from 1, and barriers separately.
        """
    def end(self) -> None:
        """
        No more collectives follow, only barriers.
        """
    def rows(self) -> list[tuple[int, int, int, int, int, int | None, str, int]]: ...

class Barrier:
    """
    The steps of a World's barrier; see zerohop.barrier. Only the thread that has entered may call it. slice:
    seconds after which a wait returns to check for failures.
    """

    FREE: typing.ClassVar[int] = 31
    LOST: typing.ClassVar[int] = 2
    SLOTS: typing.ClassVar[int] = 64
    def __init__(
        self,
        endpoint: Endpoint,
        log: CallLog,
        rank: typing.SupportsInt | typing.SupportsIndex,
        size: typing.SupportsInt | typing.SupportsIndex,
        first_slot: typing.SupportsInt | typing.SupportsIndex,
        bell: typing.SupportsInt | typing.SupportsIndex,
        slice: typing.SupportsFloat | typing.SupportsIndex,
    ) -> None: ...
    def attempt(self, timeout: typing.Any) -> float | None:
        """
        A complete barrier, if nothing goes wrong. None: all ranks have arrived. Else the seconds spent; continue with
        enter() and run(). This thread may have entered already.
        """
    def connect(
        self,
        rank: typing.SupportsInt | typing.SupportsIndex,
        peer: Peer,
        first_slot: typing.SupportsInt | typing.SupportsIndex,
    ) -> None:
        """
        first_slot: of the barrier on that rank's board.
        """
    def end(self) -> None:
        """
        Disables attempt().
        """
    def enter(self) -> bool:
        """
        False: another thread is in the barrier.
        """
    def leave(self) -> None: ...
    def missing(self) -> list[int]:
        """
        Ranks not heard from yet, in this step.
        """
    def run(
        self, seconds: typing.SupportsFloat | typing.SupportsIndex, with_digest: bool
    ) -> tuple[str, int] | None:
        """
        Continues the barrier in progress, or begins one. None: all ranks have arrived. Else what to handle, and the
        rank concerned: "quiet" (nothing arrived in time), "rung" (a rank found that calls differ), "unknown" (connect
        to that rank), "lost" (that rank is lost), "reported" (another rank reports it lost; -1: it has called shrink()),
        "different" (it has made other calls).
        """
    def unreported(self) -> list[tuple[int, int]]:
        """
        (rank, slot on its board) of those that this rank has yet to notify.
        """
    @property
    def number(self) -> int:
        """
        Of the barrier in progress.
        """

class GpuReducer:
    """
    Reduces arrays in the memory of one GPU: of that Memory. One thread at a time. Raises RouteUnavailable (built without kernels),
    CudaError.
    """

    INPUTS: typing.ClassVar[int] = 448
    def __init__(self, endpoint: Endpoint, memory: Memory) -> None: ...
    def reduce(
        self,
        op: typing.SupportsInt | typing.SupportsIndex,
        dtype: str,
        factor: typing.SupportsFloat | typing.SupportsIndex,
        out: typing.SupportsInt | typing.SupportsIndex,
        nbytes: typing.SupportsInt | typing.SupportsIndex,
        inputs: collections.abc.Sequence[typing.SupportsInt | typing.SupportsIndex],
        timeout: typing.SupportsFloat | typing.SupportsIndex,
    ) -> None:
        """
        As _core.reduce(), of arrays given by their addresses, up to INPUTS; waits for the result. Raises CudaError, TransferTimeout.
        """

class Lines:
    """
    The lines of a rank to other ranks, which carry the messages of collectives. messages, credits: the first slots
    of two adjacent ranges, each with `each` slots, on this rank's board. One thread at a time. See
    zerohop.collectives.
    """

    EAGER: typing.ClassVar[int] = 65536
    INBOX: typing.ClassVar[int] = 262464
    def __init__(
        self,
        endpoint: Endpoint,
        rank: typing.SupportsInt | typing.SupportsIndex,
        messages: typing.SupportsInt | typing.SupportsIndex,
        each: typing.SupportsInt | typing.SupportsIndex,
    ) -> None: ...
    def add(
        self,
        rank: typing.SupportsInt | typing.SupportsIndex,
        peer: Peer,
        inbox: Memory,
        messages: typing.SupportsInt | typing.SupportsIndex,
    ) -> None:
        """
        inbox: of INBOX bytes. messages: the first of these slots on that rank's board.
        """
    def has_news(self, rank: typing.SupportsInt | typing.SupportsIndex) -> bool:
        """
        Whether an unconsumed message has arrived.
        """
    def is_over(self, rank: typing.SupportsInt | typing.SupportsIndex) -> bool:
        """
        Whether that rank has hung up.
        """
    def know_over(self, rank: typing.SupportsInt | typing.SupportsIndex) -> None:
        """
        That rank has left, and the calls that do not need it may go on.
        """
    def listen(self) -> bool:
        """
        Whether a notification had arrived. Never blocks.
        """
    def meet(
        self,
        rank: typing.SupportsInt | typing.SupportsIndex,
        inbox: RemoteMemory,
        checked: bool,
        near: bool,
    ) -> None:
        """
        inbox: the other rank's, for this one. checked: the two compare what arrives (integrity=1). near: they copy from and to each other.
        """
    def over(self) -> list[int]:
        """
        Ranks that have hung up: calls do not wait before know_over().
        """
    def ring_off(self, seconds: typing.SupportsFloat | typing.SupportsIndex) -> None:
        """
        Notifies all ranks that no more messages will follow.
        """
    def untaken(self) -> dict[int, list[tuple[int, int, int, int, str]]]:
        """
        By rank: (kind, number, root, nbytes, dtype) of messages not consumed by a call.
        """

class Exchange:
    """
    A collective of this rank: all its steps. call: (kind, rank, size, root, or -1). labels: what its messages are known by: (kind, number
    for what it sends, number for what it receives, digest, dtype sent, dtype received). arrays: rows of (address, whether a CPU has access).
    outs, ins: blocks, one or by rank: (number of the array, begin, nbytes). pair: the ranks of a send_recv, to and from. reduction: op,
    factor; gpu: a GpuReducer, if all arrays are in its GPU's memory; left: seconds that it may wait for the GPU. piece: most bytes of a
    block on the way at a time; 0: as it is best. Keep the arrays until it is complete. See zerohop.collectives.
    """
    def __init__(
        self,
        endpoint: Endpoint,
        lines: Lines,
        call: tuple[
            typing.SupportsInt | typing.SupportsIndex,
            typing.SupportsInt | typing.SupportsIndex,
            typing.SupportsInt | typing.SupportsIndex,
            typing.SupportsInt | typing.SupportsIndex,
        ],
        labels: tuple[
            typing.SupportsInt | typing.SupportsIndex,
            typing.SupportsInt | typing.SupportsIndex,
            typing.SupportsInt | typing.SupportsIndex,
            typing.SupportsInt | typing.SupportsIndex,
            str,
            str,
        ],
        arrays: collections.abc.Sequence[tuple[typing.SupportsInt | typing.SupportsIndex, bool]],
        outs: collections.abc.Sequence[
            tuple[
                typing.SupportsInt | typing.SupportsIndex,
                typing.SupportsInt | typing.SupportsIndex,
                typing.SupportsInt | typing.SupportsIndex,
            ]
        ],
        ins: collections.abc.Sequence[
            tuple[
                typing.SupportsInt | typing.SupportsIndex,
                typing.SupportsInt | typing.SupportsIndex,
                typing.SupportsInt | typing.SupportsIndex,
            ]
        ],
        pair: tuple[
            typing.SupportsInt | typing.SupportsIndex | None,
            typing.SupportsInt | typing.SupportsIndex | None,
        ],
        reduction: tuple[
            typing.SupportsInt | typing.SupportsIndex, typing.SupportsFloat | typing.SupportsIndex
        ],
        gpu: GpuReducer | None,
        left: typing.SupportsFloat | typing.SupportsIndex,
        piece: typing.SupportsInt | typing.SupportsIndex,
        proposes: bool,
    ) -> None: ...
    def announce(self) -> None:
        """
        Announces large blocks to the receivers, once.
        """
    def array(self, array: typing.SupportsInt | typing.SupportsIndex) -> typing.Any:
        """
        Of what SmallCollectives has begun: the program's array of that number, or plain bytes.
        """
    def begin(self, room: tuple[typing.SupportsInt | typing.SupportsIndex, bool] | None) -> None:
        """
        room: a row as in `arrays`, the last array.
        """
    def look(self) -> None:
        """
        Raises the error of a failed transfer.
        """
    def missing(self) -> list[int]:
        """
        Ranks that still have to send something.
        """
    def proposers(self) -> list[int]:
        """
        Once complete: the ranks that propose a GpuGroup, as `proposes` does for this one.
        """
    def run(
        self,
        slice: typing.SupportsFloat | typing.SupportsIndex,
        left: typing.SupportsFloat | typing.SupportsIndex,
    ) -> tuple[str, int, typing.Any] | None:
        """
        Continues. None: complete. Else what to handle, the rank concerned, and more: "quiet" (nothing arrived in
        `slice` seconds, a rank has hung up, or a call of many steps takes longer), "full" (that rank consumes nothing), "unmet" (look its inbox up),
        "under_way" (the Transfer has not ended), "unregistered" (number of the array), "other" (the labels that
        arrived and that were expected), "length" (what arrived), "payload" (number of the array, where in it, and the bytes that
        belong there), "copy" (the array written to, where there, the array read, where there, bytes). left: seconds that posting may wait.
        """
    def set_memory(self, array: typing.SupportsInt | typing.SupportsIndex, memory: Memory) -> None:
        """
        All of the array.
        """
    @property
    def culprit(self) -> int | None:
        """
        After run() or look() raised: the rank concerned, or None.
        """
    @property
    def number(self) -> int:
        """
        Of the call, among those that all ranks make; 0 for send_recv and for calls that Python started.
        """
    @property
    def partners(self) -> list[int]:
        """
        Before begin(): the ranks to which it needs Lines.
        """
    @property
    def room(self) -> tuple[int, bool]:
        """
        Before begin(): bytes of memory that it needs besides the arrays, and whether of a host; else of the GPU that reduces.
        """
    @property
    def steps(self) -> int:
        """
        That have been begun.
        """

class Topology:
    """
    Where the ranks of a World are, and how its reductions go. host_of: by rank, any number for each host. table: rows of (hosts,
    ranks, nbytes: apply up to so many, None: to any; by_host, pairs, whole, slice: see zerohop.collectives.table); the first that
    applies counts. Raises ValueError: there is none for some sizes.
    """
    def __init__(
        self,
        host_of: collections.abc.Sequence[typing.SupportsInt | typing.SupportsIndex],
        table: collections.abc.Sequence[
            tuple[
                typing.SupportsInt | typing.SupportsIndex | None,
                typing.SupportsInt | typing.SupportsIndex | None,
                typing.SupportsInt | typing.SupportsIndex | None,
                bool,
                bool,
                bool,
                typing.SupportsInt | typing.SupportsIndex,
            ]
        ],
    ) -> None: ...
    def settle(self, lines: Lines) -> None:
        """
        Reductions over these lines go by it.
        """
    @property
    def hosts(self) -> int: ...

class GroupPart:
    """
    Registered GPU memory of each rank of a GpuGroup, which the kernels of this one reach. memory: this rank's. Raises
    RegistrationError.
    """
    def __init__(
        self,
        rank: typing.SupportsInt | typing.SupportsIndex,
        size: typing.SupportsInt | typing.SupportsIndex,
        memory: Memory,
    ) -> None: ...
    def meet(
        self,
        rank: typing.SupportsInt | typing.SupportsIndex,
        peer: Peer,
        memory: RemoteMemory,
        timeout: typing.SupportsFloat | typing.SupportsIndex,
    ) -> None:
        """
        Maps the memory of another rank. Raises RouteUnavailable, CudaError, PeerLost.
        """

class GpuGroup:
    """
    The ranks of a World as GPUs of one host, whose kernels carry out collectives; see zerohop.collectives.gpu_group.
    arena: NBYTES[size] bytes of this rank's GPU memory. Raises RouteUnavailable, CudaError, TransferTimeout.
    """

    LEFT: typing.ClassVar[tuple] = (512, 516, 520, 524, 528, 532, 536, 540)
    NBYTES: typing.ClassVar[tuple] = (
        0,
        8507392,
        42061824,
        53235680,
        58839040,
        62181248,
        64376704,
        66015200,
        67227648,
    )
    PACKET_BYTES: typing.ClassVar[tuple] = (
        0,
        2097152,
        1048576,
        699048,
        524288,
        419424,
        349520,
        299592,
        262144,
    )
    RANKS: typing.ClassVar[int] = 8
    def __init__(
        self,
        endpoint: Endpoint,
        rank: typing.SupportsInt | typing.SupportsIndex,
        size: typing.SupportsInt | typing.SupportsIndex,
        arena: Memory,
        name: str,
        timeout: typing.SupportsFloat | typing.SupportsIndex,
    ) -> None: ...
    def call(
        self,
        kind: typing.SupportsInt | typing.SupportsIndex,
        root: typing.SupportsInt | typing.SupportsIndex,
        op: typing.SupportsInt | typing.SupportsIndex,
        factor: typing.SupportsFloat | typing.SupportsIndex,
        dtype: str,
        nbytes: typing.SupportsInt | typing.SupportsIndex,
        sources: collections.abc.Sequence[typing.SupportsInt | typing.SupportsIndex],
        targets: collections.abc.Sequence[typing.SupportsInt | typing.SupportsIndex],
        stream: typing.Any,
        timeout: typing.SupportsFloat | typing.SupportsIndex,
        part: GroupPart | None = None,
    ) -> Transfer | None:
        """
        Enqueues a collective. kind, op: as in CallLog. nbytes: of a block. sources, targets: GPU addresses of the block
        sent, or of one for each rank, and of the block that comes. timeout: seconds that the kernel waits for other
        ranks. part: where the arrays may lie. Returns a Transfer; None: the call has become part of the graph into which `stream` is captured.
        """
    def end(self, reason: str) -> None:
        """
        Ends kernels that wait, and refuses later calls.
        """
    def meet(
        self,
        rank: typing.SupportsInt | typing.SupportsIndex,
        peer: Peer,
        arena: RemoteMemory,
        timeout: typing.SupportsFloat | typing.SupportsIndex,
    ) -> None:
        """
        Maps the arena of another rank. Raises RouteUnavailable, CudaError, PeerLost.
        """

class SmallCollectives:
    """
    Complete collectives of host arrays, while all goes well: those with small blocks, and large ones in slices of up to EAGER
    bytes. And the lock that a collective of any size holds while it runs. One object per World. See zerohop.collectives.

    bell: the slot that a rank notifies when it finds that calls differ. slice: seconds after which a wait returns
    to check for failures. ended: by kind, what a completed call returns.
    """
    def __init__(
        self,
        endpoint: Endpoint,
        lines: Lines,
        log: CallLog,
        rank: typing.SupportsInt | typing.SupportsIndex,
        size: typing.SupportsInt | typing.SupportsIndex,
        bell: typing.SupportsInt | typing.SupportsIndex,
        slice: typing.SupportsFloat | typing.SupportsIndex,
        ended: collections.abc.Sequence[typing.Any],
    ) -> None: ...
    def acquire(self, seconds: typing.SupportsFloat | typing.SupportsIndex) -> bool:
        """
        Waits for the lock. False: the time passed first.
        """
    def count_received(self, from_: typing.SupportsInt | typing.SupportsIndex) -> int: ...
    def count_sent(self, to: typing.SupportsInt | typing.SupportsIndex) -> int:
        """
        The number of the next send_recv to that rank.
        """
    def finished(self) -> None: ...
    def of_all(
        self,
        kind: typing.SupportsInt | typing.SupportsIndex,
        root: typing.Any,
        out: typing.Any,
        array: typing.Any,
        timeout: typing.Any,
        op: typing.SupportsInt | typing.SupportsIndex = 0,
        factor: typing.SupportsFloat | typing.SupportsIndex = 1.0,
    ) -> typing.Any:
        """
        Returns None if nothing has happened: the call is unusual or wrong, or others are in progress; `ended[kind]` if
        it has completed; else what stopped it, as from Exchange.run(). A call that has begun keeps the lock when it is
        stopped or interrupted by an exception; continue it with stopped(). root: None for none. op: of a reduction, by its place in OPS.
        """
    def of_pair(
        self,
        to: typing.Any,
        array: typing.Any,
        from_: typing.Any,
        out: typing.Any,
        timeout: typing.Any,
    ) -> typing.Any:
        """
        The same for send_recv.
        """
    def release(self) -> None:
        """
        Does nothing if another thread holds the lock, or none.
        """
    def started(self) -> None:
        """
        Python has started a call: until finished() this class refuses calls.
        """
    def stopped(self) -> Exchange | None:
        """
        The Exchange of this thread's stopped call; None: there is none.
        """
    @property
    def left(self) -> float:
        """
        Seconds left of the stopped call.
        """
    @property
    def mine(self) -> bool:
        """
        Whether this thread holds the lock.
        """

class DeviceQueue:
    """
    A local array, a Peer's array and the way between them, for kernels: made by ``Peer.device_queue``. Its
    ``value`` is the ``zerohop::device::Queue`` of ``<zerohop/device.cuh>``, found by ``zerohop.include_dir()``.
    """
    def __enter__(self) -> typing.Any: ...
    def __exit__(self, *args) -> None: ...
    def close(self) -> None:
        """
        Kernels must not use it any more. Kernels launched earlier are awaited, on a separate thread, before anything
        is unmapped. Idempotent; leaving a ``with`` block closes it, too.
        """
    @property
    def address(self) -> int:
        """
        Address of the same struct in GPU memory, for kernels that take a pointer.
        """
    @property
    def closed(self) -> bool:
        """
        Whether close() was called.
        """
    @property
    def device(self) -> str:
        """
        The GPU that runs the kernels, ``"cuda:0"``.
        """
    @property
    def error(self) -> str | None:
        """
        Why calls of kernels now return ``Status::failed``; None: nothing has failed.
        """
    @property
    def route(self) -> Route:
        """
        The route of the kernels' bytes, and why.
        """
    @property
    def value(self) -> typing.Any:
        """
        The struct that a kernel takes by value, as bytes.
        """
    @property
    def way(self) -> str:
        """
        ``"mapped"``: kernels load and store themselves. ``"direct"``: they drive a queue pair, which the adapter
        executes. ``"proxy"``: they write the same entries into a ring, which a thread of this process executes.
        """

class DeviceBoard:
    """
    Slots of this Endpoint's board, for kernels to wait on: made by ``Endpoint.device_board``. Its ``value`` is the
    ``zerohop::device::Board`` of ``<zerohop/device.cuh>``.
    """
    def __enter__(self) -> typing.Any: ...
    def __exit__(self, *args) -> None: ...
    def close(self) -> None:
        """
        Kernels must not use it any more. Kernels launched earlier are awaited, on a separate thread, before anything
        is unmapped. Idempotent; leaving a ``with`` block closes it, too.
        """
    @property
    def address(self) -> int:
        """
        Address of the same struct in GPU memory, for kernels that take a pointer.
        """
    @property
    def closed(self) -> bool:
        """
        Whether close() was called.
        """
    @property
    def device(self) -> str:
        """
        The GPU that runs the kernels, ``"cuda:0"``.
        """
    @property
    def value(self) -> typing.Any:
        """
        The struct that a kernel takes by value, as bytes.
        """

def announce_exit() -> None:
    """
    From now on, errors silently end threads other than the calling one.
    """

def ask(peer: Peer, name: str, now: bool = False) -> Inquiry:
    """
    Starts a look-up of memory. now: also ends, with None, if nothing has the name.
    """

def available_memory(root: str = "") -> int:
    """
    Bytes that new allocations may take, by /proc and the control group below `root`.
    """

def bench_memory_ping_pong(
    peer: Peer,
    source: Memory,
    target: RemoteMemory,
    inbox: Memory,
    rounds: typing.SupportsInt | typing.SupportsIndex,
    first: bool,
    timeout: typing.SupportsFloat | typing.SupportsIndex,
) -> list[float]:
    """
    Seconds of each half round trip of a write alone, whose last byte is polled in `inbox`.
    """

def bench_message_ping_pong(
    peer: Peer,
    source: Memory,
    inbox: Memory,
    rounds: typing.SupportsInt | typing.SupportsIndex,
    first: bool,
    timeout: typing.SupportsFloat | typing.SupportsIndex,
) -> list[float]:
    """
    Seconds of each half round trip of send + recv.
    """

def bench_notify(
    peer: Peer,
    slot: typing.SupportsInt | typing.SupportsIndex,
    posts: typing.SupportsInt | typing.SupportsIndex,
    batches: typing.SupportsInt | typing.SupportsIndex,
    timeout: typing.SupportsFloat | typing.SupportsIndex,
) -> list[float]:
    """
    Seconds per post of a notification, the mean of each batch of `posts`.
    """

def bench_ping_pong(
    endpoint: Endpoint,
    peer: Peer,
    source: Memory,
    target: RemoteMemory,
    slot: typing.SupportsInt | typing.SupportsIndex,
    rounds: typing.SupportsInt | typing.SupportsIndex,
    first: bool,
    timeout: typing.SupportsFloat | typing.SupportsIndex,
) -> list[float]:
    """
    Seconds of each half round trip of write + notify.
    """

def bench_post(
    peer: Peer,
    source: Memory,
    target: RemoteMemory,
    posts: typing.SupportsInt | typing.SupportsIndex,
    batches: typing.SupportsInt | typing.SupportsIndex,
    timeout: typing.SupportsFloat | typing.SupportsIndex,
) -> list[float]:
    """
    Seconds per post of a write, the mean of each batch of `posts`.
    """

def bench_stream(
    peer: Peer,
    operation: str,
    local: Memory,
    remote: RemoteMemory,
    times: typing.SupportsInt | typing.SupportsIndex,
    window: typing.SupportsInt | typing.SupportsIndex,
    timeout: typing.SupportsFloat | typing.SupportsIndex,
) -> float:
    """
    Seconds of `times` writes, reads, sends or receives with `window` in flight.
    """

def bench_tcp_ping_pong(
    endpoint: Endpoint,
    fd: typing.SupportsInt | typing.SupportsIndex,
    ball: numpy.typing.NDArray[numpy.uint8],
    rounds: typing.SupportsInt | typing.SupportsIndex,
    first: bool,
    timeout: typing.SupportsFloat | typing.SupportsIndex,
) -> list[float]:
    """
    Seconds of each half round trip on a bare TCP socket.
    """

def bench_tcp_stream(
    endpoint: Endpoint,
    fd: typing.SupportsInt | typing.SupportsIndex,
    message: numpy.typing.NDArray[numpy.uint8],
    times: typing.SupportsInt | typing.SupportsIndex,
    outgoing: bool,
    timeout: typing.SupportsFloat | typing.SupportsIndex,
) -> float:
    """
    Seconds of `times` messages one way on a TCP socket.
    """

def bench_verbs_latency(
    queue_pair: QueuePair,
    cq: CompletionQueue,
    request: SendRequest,
    times: typing.SupportsInt | typing.SupportsIndex,
    timeout: typing.SupportsFloat | typing.SupportsIndex,
) -> list[float]:
    """
    Seconds of each request from its post to its completion.
    """

def bench_verbs_ping_pong(
    queue_pair: QueuePair,
    cq: CompletionQueue,
    request: SendRequest,
    ball: numpy.typing.NDArray[numpy.uint8],
    landing: numpy.typing.NDArray[numpy.uint8],
    rounds: typing.SupportsInt | typing.SupportsIndex,
    first: bool,
    timeout: typing.SupportsFloat | typing.SupportsIndex,
) -> list[float]:
    """
    Seconds of each half round trip of a write whose last byte is polled.
    """

def bench_verbs_receive(
    queue_pair: QueuePair,
    cq: CompletionQueue,
    local: typing.Any,
    times: typing.SupportsInt | typing.SupportsIndex,
    posted: typing.SupportsInt | typing.SupportsIndex,
    timeout: typing.SupportsFloat | typing.SupportsIndex,
) -> float:
    """
    Seconds until `times` messages have arrived; `posted` of their receives are posted already.
    """

def bench_verbs_stream(
    queue_pairs: collections.abc.Sequence[QueuePair],
    cq: CompletionQueue,
    request: SendRequest,
    times: typing.SupportsInt | typing.SupportsIndex,
    window: typing.SupportsInt | typing.SupportsIndex,
    timeout: typing.SupportsFloat | typing.SupportsIndex,
) -> float:
    """
    Seconds of `times` requests on queue pairs in turn, with `window` posted in total.
    """

def bench_wait_notify(
    endpoint: Endpoint,
    first: typing.SupportsInt | typing.SupportsIndex,
    count: typing.SupportsInt | typing.SupportsIndex,
    batches: typing.SupportsInt | typing.SupportsIndex,
    timeout: typing.SupportsFloat | typing.SupportsIndex,
) -> list[float]:
    """
    Seconds per wait for a notification already there, the mean of each batch of `count`.
    """

def bench_write_many(
    peer: Peer,
    pairs: collections.abc.Sequence[tuple[Memory, RemoteMemory]],
    times: typing.SupportsInt | typing.SupportsIndex,
    window: typing.SupportsInt | typing.SupportsIndex,
    timeout: typing.SupportsFloat | typing.SupportsIndex,
) -> float:
    """
    Seconds of `times` write_many with `window` in flight.
    """

def crc32c(array: typing.Any) -> int:
    """
    The CRC32C (Castagnoli; RFC 3720, B.4) of the bytes of a contiguous array in host memory. Kernels that call
    ``put_notify_checked`` send that of their data as the notification's value (1 for 0).

    Raises TypeError (not an array), ValueError (on a GPU, not contiguous).
    """

def device_names() -> list[str]: ...
def dial(endpoint: Endpoint, address: bytes) -> Dial:
    """
    Starts to connect.
    """

def end_context(peer: Peer, context: typing.SupportsInt | typing.SupportsIndex) -> None:
    """
    This process leaves a group of ranks: its recvs of that context that have no message yet fail, and so do sends of the
    peer that no recv has taken, also later ones.
    """

def fault_words(text: str) -> dict:
    """
    All words of faults with their values, times in seconds. Raises ValueError.
    """

def find_accepted(
    endpoint: Endpoint, late: typing.SupportsFloat | typing.SupportsIndex | None = None
) -> Peer:
    """
    As accept(), without waiting: None if no peer has connected, or TransferTimeout after `late` seconds.
    """

def find_notify(
    endpoint: Endpoint,
    first: typing.SupportsInt | typing.SupportsIndex,
    count: typing.SupportsInt | typing.SupportsIndex,
    reset: bool,
    late: typing.SupportsFloat | typing.SupportsIndex | None = None,
) -> tuple[int, int] | None:
    """
    As wait_notify_any(), without waiting: None if all are empty, or TransferTimeout after `late` seconds.
    """

def forget_logs() -> None:
    """
    Call in a child made by fork(): keep no sentences.
    """

def forget_recording() -> None:
    """
    Call in a child made by fork().
    """

def gpu_count() -> int:
    """
    How many GPUs the driver reports; 0 without a driver.
    """

def gpu_export_dmabuf(array: typing.Any) -> tuple:
    """
    Exports the pages of an array as a dma-buf: a file descriptor, which the caller closes, and the offset of the
    first element in it. Raises CudaError.
    """

def gpu_facts(ordinal: typing.SupportsInt | typing.SupportsIndex) -> dict:
    """
    The driver's facts about ``cuda:<ordinal>`` that concern adapters. write_order: what makes their writes visible
    to a running kernel: nothing (``kept``), a ``flush`` or a ``read`` by the adapter. Raises CudaError.
    """

def gpu_memory(array: typing.Any) -> dict:
    """
    The kind of an array's memory and the allocation around it: addresses, and chunks as tuples of begin, end and
    buffer id, which the process never reuses for other memory. Raises CudaError, RegistrationError.
    """

def has_kernels() -> bool:
    """
    Whether this package was built with its kernels (nvcc was available).
    """

def has_nvtx() -> bool:
    """
    Whether profilers see transfers as NVTX ranges: built with its headers.
    """

def keep_times(on: bool = True) -> None:
    """
    Whether to record ``Transfer.times`` for the Transfers that this process begins from now on. Off by default: it
    costs three clock reads per Transfer. In a notebook a Transfer draws its own.
    """

@typing.overload
def leave_wait(what: Endpoint, id: typing.SupportsInt | typing.SupportsIndex) -> None:
    """
    Ends a watch started by watch(), watch_slots() or watch_accept().
    """

@typing.overload
def leave_wait(what: Transfer, id: typing.SupportsInt | typing.SupportsIndex) -> None: ...
@typing.overload
def leave_wait(what: Dial, id: typing.SupportsInt | typing.SupportsIndex) -> None: ...
@typing.overload
def leave_wait(what: Inquiry, id: typing.SupportsInt | typing.SupportsIndex) -> None: ...
@typing.overload
def outcome(of: Transfer, late: typing.SupportsFloat | typing.SupportsIndex) -> typing.Any:
    """
    Its result or error; if it has not ended, TransferTimeout after `late` seconds.
    """

@typing.overload
def outcome(of: Dial, late: typing.SupportsFloat | typing.SupportsIndex) -> Peer:
    """
    Its result or error; if it has not ended, TransferTimeout after `late` seconds.
    """

@typing.overload
def outcome(of: Inquiry, late: typing.SupportsFloat | typing.SupportsIndex) -> RemoteMemory | None:
    """
    Its result or error; if it has not ended, TransferTimeout after `late` seconds.
    """

def recv(
    peer: Peer,
    array: typing.Any,
    tag: typing.SupportsInt | typing.SupportsIndex,
    context: typing.SupportsInt | typing.SupportsIndex,
) -> Transfer:
    """
    Peer.recv() within a group of ranks.
    """

def reduce(
    op: typing.SupportsInt | typing.SupportsIndex,
    dtype: str,
    factor: typing.SupportsFloat | typing.SupportsIndex,
    out: typing.Any,
    inputs: list,
) -> None:
    """
    Reduces host arrays of one size, element by element and in that order, into `out`, which may be one of them. op:
    its place in OPS. factor: of premul_sum. Raises ValueError.
    """

def report(sentence: str) -> None:
    """
    Report a failure that cannot be raised: it becomes a RuntimeWarning in the main thread.
    """

@typing.overload
def seconds(
    endpoint: Endpoint, timeout: typing.SupportsFloat | typing.SupportsIndex | None
) -> float:
    """
    The bound in seconds of a call with that timeout.
    """

@typing.overload
def seconds(peer: Peer, timeout: typing.SupportsFloat | typing.SupportsIndex | None) -> float:
    """
    The bound in seconds of a call with that timeout.
    """

def send(
    peer: Peer,
    array: typing.Any,
    tag: typing.SupportsInt | typing.SupportsIndex,
    context: typing.SupportsInt | typing.SupportsIndex,
) -> Transfer:
    """
    Peer.send() within a group of ranks: only its recvs of that context take the message.
    """

def send_logs(bell: typing.SupportsInt | typing.SupportsIndex) -> None:
    """
    From now on, keep sentences for take_logs() and signal that eventfd; -1: stop.
    """

def start_recording(most: typing.SupportsInt | typing.SupportsIndex) -> None:
    """
    Record at most so many events. RuntimeError: a recording is on already.
    """

def stop_recording() -> tuple:
    """
    The events as dicts in the order in which they began, and how many did not fit. Their "end" is None for events
    still in progress; times are nanoseconds of time.monotonic_ns().
    """

def take_logs() -> tuple:
    """
    Tuples of level, topic and sentence, and how many were dropped for lack of room.
    """

def verbs_devices() -> list[str]:
    """
    Names of the RDMA devices that libibverbs lists, then those of the software HCA.
    """

def why_no_reduction(op: typing.SupportsInt | typing.SupportsIndex, dtype: str) -> str:
    """
    "": the operation exists for that type.
    """

def wire_text(bytes: bytes) -> str:
    """
    Text from another process as str, safe to display: see wire_text.hpp.
    """

DEFAULT_CACHE_ENTRIES: int = 1024
DEFAULT_MESSAGE_BYTES: int = 16384
DEFAULT_MESSAGE_SLOTS: int = 32
DEFAULT_P2P: int = 1
DEFAULT_STAGING_CHUNK: int = 524288
DEVICE_BOARD_NBYTES: int = 32
DEVICE_QUEUE_NBYTES: int = 80
OPS: tuple = (
    "none",
    "sum",
    "prod",
    "min",
    "max",
    "avg",
    "premul_sum",
    "band",
    "bor",
    "bxor",
    "land",
    "lor",
)
