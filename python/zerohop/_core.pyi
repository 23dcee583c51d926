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
    "Grant",
    "Inquiry",
    "Lines",
    "Memory",
    "MemoryRegion",
    "MemorySlice",
    "Peer",
    "ProtectionDomain",
    "QueuePair",
    "QueuePairAddress",
    "RemoteMemory",
    "Route",
    "SendRequest",
    "SmallCollectives",
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
    "report",
    "seconds",
    "send_logs",
    "start_recording",
    "stop_recording",
    "take_logs",
    "verbs_devices",
    "wire_text",
]

class AsyncEvent:
    """
    Something that happened to a device, port or queue.
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
        State of the port, asked anew (man ibv_query_port); sizes in bytes.
        """
    @property
    def provider(self) -> str:
        """
        Who fills the verbs table: "libibverbs" or "softhca".
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
        The immediate value that came along, or None.
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

    depth: how many completions fit; more of them than that are lost for good (CQ_ERR).
    """
    def __init__(
        self, device: Device, depth: typing.SupportsInt | typing.SupportsIndex = 256
    ) -> None: ...
    def __repr__(self) -> str: ...
    def arm(self) -> None:
        """
        Ask for one event at the next completion. Poll once more afterwards: a completion that came before
        gives no event (man ibv_req_notify_cq).
        """
    def poll(self, max: typing.SupportsInt | typing.SupportsIndex = 16) -> list[WC]:
        """
        The completions that are there, at most max of them; never waits.
        """
    def resize(self, depth: typing.SupportsInt | typing.SupportsIndex) -> None:
        """
        Change the depth (man ibv_resize_cq).
        """
    def wait(self, timeout: typing.SupportsFloat | typing.SupportsIndex = 30.0) -> bool:
        """
        Wait for the event that arm() asked for; False when timeout seconds have passed.
        """
    @property
    def depth(self) -> int: ...

class QueuePairAddress:
    """
    What the other side must know to connect: a plain value; to_bytes() may travel over any channel.
    """
    @staticmethod
    def from_bytes(encoded: bytes) -> QueuePairAddress:
        """
        Raises ProtocolError for anything that to_bytes() did not give.
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
        Reads and atomics that this side serves at once.
        """
    @property
    def reads_out(self) -> int:
        """
        Reads and atomics that this side has outstanding at most.
        """

class QueuePair:
    """
    A reliable-connected (RC) queue pair, from RESET to RTS and back (man ibv_create_qp, ibv_modify_qp).

    cq takes the completions of both directions unless receive_cq is given. Depths count work requests,
    *_sge count scatter/gather elements; the device may grant more or less, see options. timeout: the
    local ACK timeout is 4.096 us * 2**timeout; rnr_retries: 7 means for ever; rnr_timer: code of the
    pause that a receiver without posted receives asks for (12: 0.64 ms).
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
        To ERR: what is posted ends with IBV_WC_WR_FLUSH_ERR.
        """
    def init(self, access: typing.SupportsInt | typing.SupportsIndex | None = None) -> None:
        """
        RESET to INIT; access: the remote operations that peers may do, as Access flags; by default all that the device knows.
        """
    def post_many(self, requests: collections.abc.Sequence[SendRequest]) -> None:
        """
        Post SendRequests as one chain with one doorbell. Raises VerbsError naming the first request that
        was not taken; those before it were.
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
        Post one request; the arguments are those of SendRequest. Raises VerbsError when it is not taken, for instance because the queue is full.
        """
    def reset(self) -> None:
        """
        To RESET: what is posted vanishes without a completion.
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
    wr_id: 64-bit number that comes back in WC.wr_id.
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
        The same bytes in another shape; ValueError as of ``Memory.reshape``.
        """
    def view(self, dtype: typing.Any) -> ArrayView:
        """
        The same bytes as elements of another dtype; ValueError as of ``Memory.view``.
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

class RemoteMemory:
    """
    Memory of another Endpoint and the right to use it: a plain value.

    Comes from ``Memory.remote`` and travels as bytes (``to_bytes``), by pickle, or by name
    (``Endpoint.share`` and ``peer[name]``). It contains the key to the memory: give it only to those who
    may use it. Slicing works as on ``Memory``. The key covers the whole registration that the array
    belongs to; ``Endpoint.register(array, cache=False)`` makes one that covers the array alone.
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
        The same memory in another shape, as numpy has it; ValueError for memory with gaps.
        """
    def to_bytes(self) -> bytes: ...
    def view(self, dtype: typing.Any) -> RemoteMemory:
        """
        The same bytes as elements of another dtype; ValueError as of ``Memory.view``.
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
        Where it lies there: ``"cpu"`` or ``"cuda:0"``, as its owner counts.
        """
    @property
    def dtype(self) -> str:
        """
        Its name: ``"float32"``.
        """
    @property
    def endpoint_id(self) -> str:
        """
        The ``id`` of the Endpoint whose memory it is.
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
    A registered array: its bytes can be read and written by peers who have its ``remote``.

    Made by ``Endpoint.register`` and ``Endpoint.empty``. Keeps the array alive. Slicing with integers,
    slices, ``...`` and ``None`` gives a part of the same memory, as numpy's basic indexing does.
    ``numpy.asarray(m)``, ``numpy.from_dlpack(m)`` and ``torch.from_dlpack(m)`` share its bytes; of GPU memory
    ``torch.from_dlpack(m)`` and ``cupy.from_dlpack(m)``.
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
        The bytes as a DLPack capsule (array API 2024.12). Of GPU memory: waits until the default stream has done its
        present work unless stream=-1, 30 s at most.
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
        TypeError: it stays in its process; ``m.remote`` is what travels.
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
        End the registration: peers can reach the memory no more. Transfers that run finish first. Closes the
        slices of this memory too. Calling it again does nothing.
        """
    def reshape(self, *args) -> Memory:
        """
        The same memory in another shape, as numpy has it: ``m.reshape(2, 3)``, ``m.reshape((2, -1))``. ValueError for
        memory with gaps, which would have to be copied. Raises RegistrationError once closed.
        """
    def view(self, dtype: typing.Any) -> Memory:
        """
        The same bytes as elements of another dtype (as ``Endpoint.empty`` takes it): ``m.view("float32")``. Another item size scales
        the last axis, which must have no gaps then. ValueError says what stands in the way: gaps, a last axis that the
        new item size does not divide, an address or strides that it does not divide. Raises RegistrationError once closed.
        """
    @property
    def address(self) -> int:
        """
        Address of the first element in this process.
        """
    @property
    def closed(self) -> bool:
        """
        Whether it is registered no more.
        """
    @property
    def contiguous(self) -> bool:
        """
        Whether the elements lie in C order without gaps.
        """
    @property
    def device(self) -> str:
        """
        Where it lies: ``"cpu"`` or ``"cuda:0"``.
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
        How it is registered: ``"host"``; of GPU memory ``"dmabuf"``, ``"peermem"`` or ``"staged"`` (through pinned memory
        of the host). ``peer.route(...)`` says why.
        """
    @property
    def remote(self) -> RemoteMemory:
        """
        The ``RemoteMemory`` to give to a peer: whoever has it may read this memory, and write it if it is
        writable. Raises RegistrationError once closed.
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
    The right to some memory, to be given to peers and taken back: made by ``Endpoint.grant``. As a context manager it is
    revoked at the end of the ``with``; else when it is dropped.
    """
    def __enter__(self) -> typing.Any: ...
    def __exit__(self, *args) -> None: ...
    def __repr__(self) -> str: ...
    def revoke(self) -> None:
        """
        Take it back. When this returns, nobody who has its ``remote`` reads or writes the memory any more: what they try is
        refused as memory that was closed. That holds where another thread, its time or its memory has begun to end it, too. Copies
        of GPU memory that the Endpoint makes itself (route ``staged``) are waited for, five seconds at most; one that hangs is
        reported. Calling it again does nothing.
        """
    @property
    def remote(self) -> RemoteMemory:
        """
        The ``RemoteMemory`` to give away. Raises RegistrationError, which says why, once it has ended.
        """
    @property
    def revoked(self) -> bool:
        """
        Whether it was revoked, or its time or its memory has ended, and nobody has it any more.
        """
    @property
    def writable(self) -> bool:
        """
        Whether it allows to write.
        """

class Route:
    """
    Which way the bytes of a transfer go, and why.
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
        One sentence. Between two GPUs it says over how many NVLinks, and how fast those are (of NVML, with
        ``pip install zerohop[nvlink]``), or over what kind of PCIe path (of /sys): looked up when first asked for.
        """
    @property
    def settings(self) -> dict[str, int | float | str | list[dict[str, int | float | str]]]:
        """
        The effective settings by name, for instance ``"mtu"`` in bytes: of the Endpoint and of the queue pair. The
        keywords of an Endpoint are explained there; rd_atomic is shown as rd_atomic_out and rd_atomic_in, what both
        ends agreed on; message_slots as message_slots_in, its own, and message_slots_out, the peer's; message_bytes is the
        smaller of both ends'. relaxed_ordering is what is asked for: a kernel may drop it without a word. Of an Endpoint on
        several devices ``"rails"`` is a list of dicts with those of each rail's queue pair (MTU, GID, reads, ...), of
        which the first that carries the transfer is shown beside it. Empty for the
        route of a Transfer: ask ``Peer.route``.
        """

class Transfer:
    """
    One asynchronous operation. When it is done without error the source may be reused and the bytes are
    at the destination. Dropping it changes nothing: the transfer goes on, and keeps its memory alive.

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
        Raises TransferTimeout when the time is over (the transfer goes on), or what ended the transfer: PeerLost,
        VerbsError, ... whose ``effect`` tells what may have been written.
        """
    def wait_on(
        self, stream: typing.Any, timeout: typing.SupportsFloat | typing.SupportsIndex | None = None
    ) -> Transfer:
        """
        Have a GPU stream wait for this transfer: what the stream is given from now on begins once it is done. The call
        itself waits for nothing. stream: as for ``Peer.write``, of any GPU of this process.

        Returns a Transfer that is done when the stream goes on. The stream waits at most `timeout` seconds (default:
        the Endpoint's), counted from when it gets there. If the transfer is not done by then, or fails, the stream
        goes on all the same: a RuntimeWarning says so, and wait() of what this call returned raises TransferTimeout,
        or what ended the transfer. Raises at once what ended a transfer that has failed already; RouteUnavailable
        (the stream is being captured into a CUDA graph; no GPU), CudaError. The wait is a kernel of one thread.
        """
    @property
    def done(self) -> bool:
        """
        Whether it has ended, with or without error. Never blocks.
        """
    @property
    def nbytes(self) -> int:
        """
        Bytes of all its arrays; of a recv, those there is room for.
        """
    @property
    def route(self) -> Route:
        """
        The route it takes.
        """
    @property
    def timeout(self) -> float:
        """
        Bound of a wait that is given none, seconds: the Endpoint's.
        """
    @property
    def times(self) -> dict[str, float] | None:
        """
        When it was what, in seconds of ``time.monotonic()``, or None: it was begun while ``zh.keep_times()`` was off, as it is unless
        asked for. A dict: ``"asked"``, when the call made it; ``"begun"``, when a device, a CPU or a GPU was first given a part of it to
        move (a GPU may have other work to do first); ``"ended"``, when it was done, with or without error. Those that have not
        come yet are missing, as is ``"begun"`` of what nothing of this process moves: a recv whose bytes came along with the
        message.
        """

class Peer:
    """
    The connection to one remote Endpoint, made by ``Endpoint.connect`` or ``Endpoint.accept``.

    When the peer dies, hangs or leaves, every pending and later operation raises PeerLost within 5 seconds.
    An operation that fails otherwise (memory the peer has closed, say) takes those in flight with it, and
    later ones work again.
    """
    def __contains__(self, name: str) -> bool:
        """
        Whether the peer shares memory under `name` now. It is asked, as by peer[name].
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
        Let what is posted finish, at most `timeout` seconds (default: the Endpoint's), then leave. The other side
        sees PeerLost. Calling it again does nothing. What has not finished by then ends with PeerLost, and the logger
        zerohop.transfer is told how much that was.

        A send() of more than 16384 bytes is posted as an offer and its bytes leave with the recv of the other side:
        close() does not wait for that recv. A send still without one is dropped: its Transfer ends with PeerLost, and
        close() gives a RuntimeWarning. Wait for the Transfer first.
        """
    def compare_swap(
        self,
        remote: RemoteMemory,
        expected: typing.SupportsInt | typing.SupportsIndex,
        desired: typing.SupportsInt | typing.SupportsIndex,
    ) -> Transfer:
        """
        Replace one remote 8-byte element by `desired` if it equals `expected`, atomically as fetch_add();
        wait() returns the old value, which tells whether it did.
        """
    def device_queue(
        self,
        local: typing.Any,
        remote: RemoteMemory,
        *,
        hears: str = "both",
        way: str = "auto",
        timeout: typing.SupportsFloat | typing.SupportsIndex | None = None,
    ) -> DeviceQueue:
        """
        For kernels of `local`'s GPU to put, get and notify by themselves. Both arrays are contiguous, the local one lies on a
        GPU. The ways (``DeviceQueue.way`` and ``.route`` tell which, and why not the other):

        - ``"mapped"``: loads and stores, with no CPU in the way, where the other process is on this host and its memory, on a
          GPU and in a single chunk (as of ``Endpoint.empty()`` and cudaMalloc), is mapped. Until the queue is closed it stays
          mapped; a peer that closes that memory or the connection waits for it, five seconds at most.
        - ``"proxy"``: everywhere else, to memory of GPUs and hosts alike: kernels write entries into a ring, which a thread of
          this process carries out as the Peer's other transfers by devices are. It looks at the ring all the time while there
          is something to do, and every millisecond when there was nothing for a second.
        - ``"direct"``, only where asked for: kernels write the entries of a queue pair of their own into its send queue, ring
          its doorbell and look for its completions by themselves (GPU-initiated RDMA): with ``soft0``, and written for mlx5
          adapters where `remote` is in the memory of the host, but not verified on any. The device must reach both arrays.
          For an adapter's doorbell the driver needs
          ``options nvidia NVreg_RegistryDwords="PeerMappingOverride=1;"``.
        - ``"auto"`` (default): ``"mapped"``, else ``"proxy"``.

        hears: who hears the notifications that kernels put by mapped memory: the peer's kernels and streams (``"gpu"``), its
        ``wait_notify`` (``"cpu"``), or ``"both"``, which takes a kernel that notifies again and again half a microsecond more
        each time. Those wake nobody, nor do a direct queue's: a CPU that sleeps in wait_notify looks every millisecond. By the
        other ways all hear.

        timeout: seconds that a call of a kernel waits which is given no bound, and that this call may take (default: the
        Endpoint's). Raises RouteUnavailable, ValueError (such arrays it does not take), PeerLost, CudaError,
        RegistrationError, TransferTimeout.
        """
    def fetch_add(
        self, remote: RemoteMemory, value: typing.SupportsInt | typing.SupportsIndex
    ) -> Transfer:
        """
        Add to one remote 8-byte element (int64 or uint64, aligned to 8), atomically among all operations of
        the peer's device, not with what a kernel does meanwhile to an element on a GPU; wait() returns the old
        value. Overflow wraps.
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
    ) -> Transfer:
        """
        Put a value (1 to 2**32 - 1) into a slot (0 to 65535) of the peer's notification board, where wait_notify()
        finds it. It is not seen before the data of any write() called earlier. When the Transfer is done it is on its
        way, and is seen a moment later. A slot holds one value: a later one replaces one that nobody took.

        Raises IndexError (slot), ValueError (value), PeerLost.
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
        Read a remote array into a local one of the same shape and dtype (RDMA read). With notify the peer is
        notified once the data has arrived here. Otherwise as write().
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
        Read many arrays as one Transfer. pairs: as for write_many, of (RemoteMemory, Memory or array).
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
        Read many parts of a remote array, along its first axis, into such parts of a local one, as one Transfer:
        source[source_pages[k]] into destination[destination_pages[k]] for every k. Indices as for write_pages(),
        otherwise as read().
        """
    def recv(
        self, array: typing.Any, tag: typing.SupportsInt | typing.SupportsIndex = 0
    ) -> Transfer:
        """
        Receive the next message of that tag into an array (or Memory); wait() returns its number of bytes.

        A shorter message fills the beginning of a contiguous array. One that does not fit raises ValueError
        and stays for another recv.
        """
    def route(self, local: typing.Any, remote: RemoteMemory) -> Route:
        """
        Which way bytes between the two would go, and why; where that is not p2p, why not. A transfer may still be
        left to the device, as its own ``route`` then says: when a device has earlier work with the peer to finish.

        Raises PeerLost, RegistrationError (`local` is closed), RouteUnavailable (there is none).
        """
    def send(
        self, array: typing.Any, tag: typing.SupportsInt | typing.SupportsIndex = 0
    ) -> Transfer:
        """
        Send an array (or Memory) to a matching recv of the peer, in order for each tag (0 to 2**32 - 1).

        Up to 16384 bytes are copied and done when they are in the peer's memory; larger arrays stay where they
        are until the peer's recv has read them. Bytes are matched, not shapes or dtypes.
        """
    def stats(self) -> dict:
        """
        Counters since the connection was made, as a dict of ints, and two lists, "routes" and "rails". Reading them
        costs transfers nothing. Keys may come to be, those that are here stay as they are.

        work_requests, doorbells: posted to the device, and how often it was told. bytes_out, bytes_in: of the
        writes and sends, and of the reads, that were posted. messages_in, notifications_in: that came from the
        peer over the device. queue_full: how often a call waited for room. queue_pair_errors: how often it had to be
        replaced. sleeps: how often it was given back because nothing needed it (max_awake_peers).

        "routes": what this process began, a dict for each route and device that it may take or has taken: "route"
        and "device" (strs, as of a Route: p2p over cpu is between host memories, p2p over cuda:0 is what that GPU of this
        process copies); writes, reads, atomics, sends, recvs: how many were begun; notifications_out: put behind
        data, or alone; bytes_out (of writes and sends) and bytes_in (of reads, and of recvs that have ended); failures:
        that ended with an error; under_way: begun, and not ended yet; latency: how long those took that ended without an
        error, as below; chunks_mapped, nbytes_mapped: of the peer's
        GPU memory, for the p2p of this GPU, now. What the peer writes and reads here is in its own stats().

        "latency": a dict by operation, "write", "read", "atomic", "send", "recv" and "notify" (a notification alone), of those
        that there were: dicts of seconds from its posting to the moment at which this process saw it done (of a recv: until a
        message came; of copies and notifications that the CPU makes in the call one of eight, as soon as there were 1024, for all); count, sum, p50, p90, p99 (percentiles, as if times lay evenly in their bucket), and buckets: pairs of a bound in
        seconds and how many took that long or less, but longer than the next lower bound; two for each power of two from
        64 ns to 68.7 s, without those that count none; the bound of what took longer is inf.

        "rails": dicts with the counters that come first, for each device, its name ("device"), whether it carries
        transfers now ("serves"), why it does not ("trouble", a str, empty if it does), and nbytes_registered, the memory that
        is registered with the device for messages (message_slots, message_bytes) and the results of atomics of this Peer, and
        "asleep": whether queue pair and memory were given back until they are needed (max_awake_peers).

        "p2p" is there with a peer on the same host unless one of the two Endpoints has p2p=0, a dict: bytes_out and bytes_in, copied
        without a device (and in the sums above); unanswered, how often the peer did not say in time where its
        memory is, so that a device took over; and nbytes_page_locked, of the host's memory, for the copies of GPUs: by
        this process for all its Peers, now.
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
        notify: (slot, value) to put on the peer's notification board behind the data, slot 0 to 65535, value 1 to
        2**32 - 1. When the Transfer is done the data is there, and the notification is seen a moment later. A slot
        holds one value: a later one replaces one that nobody took.
        require: the only kind of route to take, for instance "host"; RouteUnavailable says why not.
        timeout: seconds that a full queue may hold this call up (default: the Endpoint's); the transfer is
        accepted even then.
        stream: of the GPU of the local array, or of any that reaches the peer's if that is in the host's memory: PyTorch's,
        CuPy's, Numba's, any object with ``__cuda_stream__``, or a handle as an int (0 or 1: the legacy default
        stream). By p2p from or to a GPU's array the transfer is put into that stream,
        data and notification, and the call waits for nothing: it begins when the stream gets there, and what the
        stream is given afterwards begins behind it. It follows the calls before it that named no stream; those of
        different streams are in no order. On the other routes the call waits, `timeout` seconds at most, until the
        stream has done what it was given. Not during a capture into a CUDA graph (RouteUnavailable).
        Without stream= a transfer begins behind what the default stream of the array's GPU was given before: by p2p
        without a wait, on the other routes the call waits for it.

        Returns a Transfer. Raises PeerLost, RegistrationError (closed memory), RouteUnavailable, CudaError,
        TransferTimeout (the default stream), ValueError (shapes, dtypes or rights that do not fit).
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
        Write many parts of a local array, along its first axis, to such parts of a remote one, as one Transfer:
        source[source_pages[k]] to destination[destination_pages[k]] for every k. So the blocks of a paged KV cache move
        without an object for each: of the calls for many blocks this is the fast one.

        source: Memory, or an array. destination: RemoteMemory. Of both a page, array[i], has the same shape and dtype; it
        may be strided. source_pages, destination_pages: as many indices each, from 0, negative ones do not count
        from the end: an array along one axis of int32, int64, uint32 or uint64 in host memory (buffer protocol or DLPack), any
        sequence of ints, or None for all pages in order. They are copied: what becomes of them after the call does not
        matter. Destination pages must not repeat: which of the pages written to one remains is undefined, and this is
        not checked. Otherwise as write(); the notification follows the last page.

        Raises IndexError (an index, with its position and the bound), ValueError (pages, or numbers of indices, that
        differ; indices of several axes), TypeError (indices of another type, or in a GPU's memory: pass .cpu()), and
        what write() raises.
        """
    @property
    def alive(self) -> bool:
        """
        Whether it is connected; False once it is lost, and in a forked child.
        """
    @property
    def host(self) -> str:
        """
        The name of the host that its process runs on.
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
        Bound of a wait that is given none, seconds: the Endpoint's.
        """
    @property
    def why_lost(self) -> str | None:
        """
        Why it is lost, such as ``'its process has ended'``; None while it is not, and in a forked child.
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
        The words of the faults that there are; empty: none.
        """
    def _put_faults(self, text: str) -> None:
        """
        What set_faults() does, of text.
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
        Let what is posted finish, at most `timeout` seconds (default: the Endpoint's), leave every peer and stop.
        Calling it again does nothing. RuntimeWarning: it dropped a send(), as Peer.close() explains.
        """
    def connect(
        self, address: bytes, timeout: typing.SupportsFloat | typing.SupportsIndex | None = None
    ) -> Peer:
        """
        Connect to the Endpoint with that address (bytes) and return its Peer; the present one if both are
        connected already. Both sides may call it at once.

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
        `count` slots from `first` on, for kernels of `device` to wait on. Until it is closed, what GPUs put there is for them,
        and not for calls that wait or look.

        Raises RouteUnavailable (no CUDA driver, built without kernels, a GPU that does not reach the board), IndexError (slots),
        ValueError (no slot, no GPU's name), CudaError (no such GPU, or it failed), TransferTimeout (a kernel keeps the GPU busy for
        `timeout` seconds; default: the Endpoint's), and Error once closed.
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
        numpy.float32), or a dtype of torch or ml_dtypes, or its name ("bfloat16", "float8_e4m3fn"). device: ``"cpu"`` or
        ``"cuda:<ordinal>"``, or a torch.device; of a GPU it is memory that other processes can be given and, where the GPU allows it,
        adapters reach (cuMemCreate), in pages of 2 MiB: ``torch.from_dlpack(memory)`` or ``cupy.from_dlpack`` is its
        array. It lives as long as that array or the Memory does, and then until the GPU has done its present work.
        Do not drop it while a stream is being captured into a CUDA graph: as cudaFree would, that spoils the capture.
        registration: of GPU memory, as of register().

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
        The right to read some memory of this Endpoint, which can be taken back while the memory goes on: a ``Grant``.

        memory: Memory, or a slice of one; a key of its own reaches from its first to its last byte.
        writable: whether peers may write it, too, and have atomics.
        timeout: seconds after which it ends by itself; None: it does not.

        What can be revoked is never mapped by processes of this host: they reach it by a device, too, which is slower than
        the route p2p. It ends when its Memory is closed. Raises RegistrationError, TypeError, ValueError (more than the memory
        itself allows).
        """
    def notify(
        self,
        slot: typing.SupportsInt | typing.SupportsIndex,
        value: typing.SupportsInt | typing.SupportsIndex,
    ) -> None:
        """
        Put a value (1 to 2**32 - 1) into a slot (0 to 65535) of this Endpoint's own board, as ``Peer.notify`` of a peer does:
        it is there at once, and wakes who waits for it. It is in no order with what peers write.

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
        cache: use a registration again that covers the array; its key then reaches all of what it covers.
        With False the key reaches the array and nothing more.
        registration: how GPU memory is registered, ``"dmabuf"``, ``"peermem"`` or ``"staged"`` (not with the device:
        this Endpoint copies through pinned chunks of the host), or RegistrationError says what is missing; or ``"auto"``, the
        first that works (on soft0, which copies by itself, also ``"staged"``). Default: the Endpoint's ``registration``.
        ``Memory.registration`` tells which it became.
        The first array of a GPU that is registered (or made by empty()) loads the kernels there and takes 2 MiB of its memory.

        Returns Memory, which keeps the array alive. The storage of a tensor of PyTorch on the CPU cannot be resized any more, for
        good; a RuntimeWarning says where PyTorch cannot be kept from it. Raises RegistrationError, TypeError, ValueError.
        """
    def reset_notify(self, slot: typing.SupportsInt | typing.SupportsIndex) -> int:
        """
        Empty the slot and return what was in it, 0 if nothing was. Never blocks.
        """
    def share(self, name: str, memory: Memory) -> None:
        """
        Publish memory: peers find it by ``peer[name]`` and ``peer.lookup(name)``. Replaces what had the name.
        """
    def stats(self) -> dict:
        """
        Counters of all the Peers that this Endpoint has and had, those that are lost or closed too: a dict with "peers", how
        many are connected now, "routes", a list as in Peer.stats(), of one dict for each route and device, added up
        over all of them, and "connections", a list of dicts: one for each that is there, behind one for each of the last 64 names of
        peers whose connections have ended, the oldest first: "peer", the name, "ended", None or a str that says why the last of that
        name ended, and "routes", as before but for what is mapped. Also after close(). Reading them costs transfers nothing.

        "faults" is a dict of how often each fault on purpose (zh.Faults) has happened, empty where none has; corrupt_found and
        duplicate_found are packets of peers that were dropped.
        """
    def unshare(self, name: str) -> None:
        """
        Publish it no longer; KeyError if nothing has that name. Who has its RemoteMemory keeps the right: close the Memory to end that.
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
        Wait until a peer has put a value into the slot (0 to 65535) and return it; what was written before it is
        there. reset: also empty the slot. A slot holds one value: of several that came in the meantime, the last.

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
        With stream= (as for ``Peer.write``, of any GPU of this process) the call waits for nothing: the stream does.
        What it is given from now on begins when a peer has put a value into the slot, and finds what was written before
        that. Returns a Transfer, done some 0.1 ms after the stream goes on; its wait() returns the value. What GPUs put
        into the slot meanwhile is for the stream, not for calls that wait or look without one.

        The stream waits at most `timeout` seconds, counted from when it gets there. It goes on all the same if nothing
        came by then, or no peer is left that could notify: a RuntimeWarning says so, and wait() of the Transfer raises
        TransferTimeout or PeerLost. The wait is a kernel of one thread, which always ends; the driver's own operation
        would not. Where the GPU has no atomics with host memory, a value that replaces one at the very moment when a
        stream takes that is lost: give each value under way a slot of its own. Raises
        RouteUnavailable (the stream is being captured into a CUDA graph; built without kernels), CudaError, IndexError.
        """
    def wait_notify_any(
        self,
        first: typing.SupportsInt | typing.SupportsIndex,
        count: typing.SupportsInt | typing.SupportsIndex,
        timeout: typing.SupportsFloat | typing.SupportsIndex | None = None,
        reset: bool = True,
    ) -> tuple[int, int]:
        """
        Wait for any slot of [first, first + count); returns (slot, value). As wait_notify().
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
        The verbs device, for instance ``"soft0"``; several with commas in between.
        """
    @property
    def device_events(self) -> list[dict]:
        """
        What the devices said by themselves, the newest last, 64 at most: dicts of ``time`` (seconds since the epoch),
        ``device``, ``type`` (``"PORT_ERR"``: man ibv_get_async_event), ``port`` (0: it is not about one), ``peer`` (whose
        queue pair it is about, else ``""``) and ``message``, with the remedy. Those that mean trouble for a device or a
        port are also RuntimeWarnings. Empty once closed.
        """
    @property
    def id(self) -> str:
        """
        Names this Endpoint in the world, hexadecimal; not a secret.
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
        unused ones for lack of room (knob ``registration_cache``), ``stale`` ones whose memory had been freed; and
        the ``entries`` and ``nbytes`` that there are, of which nobody uses ``unused`` and ``unused_nbytes``.
        """
    @property
    def timeout(self) -> float:
        """
        Bound of a wait that is given none, seconds.
        """

class Dial:
    """
    A connect() under way; dropped, it ends. See zerohop.aio.
    """
    @property
    def done(self) -> bool: ...

class Inquiry:
    """
    A lookup() under way. See zerohop.aio.
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
    What a rank has called, in memory that the other ranks read: 64 records of 64 bytes, all zero in the beginning. See
    zerohop.history. A row is (position, number, digest, kind, root, nbytes, dtype); nbytes is None where ranks may differ in it.
    """
    @staticmethod
    def rows_in(memory: bytes) -> list[tuple[int, int, int, int, int, int | None, str]]:
        """
        The same of another rank's.
        """
    def __init__(self, memory: typing.Any) -> None: ...
    def add(
        self,
        kind: typing.SupportsInt | typing.SupportsIndex,
        root: typing.SupportsInt | typing.SupportsIndex,
        nbytes: typing.SupportsInt | typing.SupportsIndex | None,
        dtype: str,
    ) -> tuple[int, int, int, int, int, int | None, str]:
        """
        Numbers it: collectives from 1, and barriers by themselves.
        """
    def end(self) -> None:
        """
        There are no more collectives: only barriers go in.
        """
    def rows(self) -> list[tuple[int, int, int, int, int, int | None, str]]: ...

class Barrier:
    """
    The steps of a World's barrier; see zerohop.barrier. One thread at a time, which enters. slice: seconds after which a wait stops
    for a look.
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
        A call from its beginning to its end, as long as all goes well. None: all have come. Else the seconds that it has taken; enter()
        and run() go on, and this thread has entered already if it could.
        """
    def connect(self, rank: typing.SupportsInt | typing.SupportsIndex, peer: Peer) -> None: ...
    def end(self) -> None:
        """
        attempt() does nothing any more.
        """
    def enter(self) -> bool:
        """
        False: another thread is in the barrier.
        """
    def leave(self) -> None: ...
    def missing(self) -> list[int]:
        """
        Ranks that have yet to be heard, in this step.
        """
    def run(
        self, seconds: typing.SupportsFloat | typing.SupportsIndex, with_digest: bool
    ) -> tuple[str, int] | None:
        """
        Goes on with the barrier that is under way, or begins one. None: all have come. Else what is to be looked at, and the rank that
        it is about: "quiet" (nothing came in time), "rung" (somebody has found that calls differ), "unknown" (that rank is to be
        connected), "lost" (it is), "told" (another one says so; -1: it has called shrink()), "different" (it has made other calls).
        """
    def untold(self) -> list[tuple[int, int]]:
        """
        (rank, slot on its board) of those that this rank has yet to tell.
        """
    @property
    def number(self) -> int:
        """
        Of the one that is under way.
        """

class Lines:
    """
    The lines of a rank to others, over which messages of collectives go. messages, credits: the first slots of two ranges, one
    behind the other, that have `each` slots on every rank's board. One thread at a time. See zerohop.collectives.
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
        self, rank: typing.SupportsInt | typing.SupportsIndex, peer: Peer, inbox: Memory
    ) -> None:
        """
        inbox: of INBOX bytes.
        """
    def has_news(self, rank: typing.SupportsInt | typing.SupportsIndex) -> bool:
        """
        Whether a message has come that nobody has taken.
        """
    def is_over(self, rank: typing.SupportsInt | typing.SupportsIndex) -> bool:
        """
        Whether that rank has rung off.
        """
    def listen(self) -> bool:
        """
        Whether a notification had come. Never blocks.
        """
    def meet(
        self, rank: typing.SupportsInt | typing.SupportsIndex, inbox: RemoteMemory, checked: bool
    ) -> None:
        """
        inbox: the other rank's for this one. checked: the two compare what arrives (integrity=1).
        """
    def over(self) -> list[int]: ...
    def ring_off(self, seconds: typing.SupportsFloat | typing.SupportsIndex) -> None:
        """
        Tells all that there is nothing more to wait for here.
        """
    def untaken(self) -> dict[int, list[tuple[int, int, int, int, str]]]:
        """
        By rank: (kind, number, root, nbytes, dtype) of what has come and no call has taken.
        """

class Exchange:
    """
    Blocks that go to some ranks while others come from some. sends, receives: lists of (rank, address, nbytes, Memory, number of
    the call, bytes of the whole block, part, dtype), with None for the address of what a CPU does not reach, and for the Memory of
    a block of EAGER bytes or fewer that it does, which a receive may have to be given later. of_all: the call is everybody's. See zerohop.collectives.
    """
    def __init__(
        self,
        endpoint: Endpoint,
        lines: Lines,
        sends: list,
        receives: list,
        kind: typing.SupportsInt | typing.SupportsIndex,
        root: typing.SupportsInt | typing.SupportsIndex,
        digest: typing.SupportsInt | typing.SupportsIndex,
        of_all: bool,
    ) -> None: ...
    def announce(self) -> None:
        """
        Tells those that wait of large blocks, once.
        """
    def look(self) -> None:
        """
        Raises what has failed.
        """
    def missing(self) -> list[int]:
        """
        Ranks from which something has yet to come.
        """
    def place(
        self, receive: typing.SupportsInt | typing.SupportsIndex
    ) -> tuple[typing.Any, int, int]:
        """
        Of what SmallCollectives has begun: the array into which it goes, where there, and its bytes.
        """
    def run(
        self,
        slice: typing.SupportsFloat | typing.SupportsIndex,
        left: typing.SupportsFloat | typing.SupportsIndex,
    ) -> tuple[str, int, typing.Any] | None:
        """
        Goes on. None: it is complete. Else what is to be looked at, the rank that it is about, and more: "quiet" (nothing has come in
        `slice` seconds, or a rank has rung off), "full" (that rank takes nothing), "unmet" (its inbox is to be looked up), "under_way"
        (the Transfer has not ended), "unregistered" (number of the receive), "other" (the labels of what has come and of what should), "length" (of what has come), "payload"
        (number of the receive, and the bytes that belong there). left: seconds that posting may wait.
        """
    def set_memory(
        self, receive: typing.SupportsInt | typing.SupportsIndex, memory: Memory
    ) -> None: ...
    @property
    def culprit(self) -> int | None:
        """
        Of a run() or look() that has raised: the rank that it is about, None for none.
        """
    @property
    def number(self) -> int:
        """
        Of the call, among those that all ranks make; of send_recv, and of what Python has begun, 0.
        """

class SmallCollectives:
    """
    Collectives of small host arrays among up to eight ranks, from their arguments to their end, as long as all goes well; and the
    lock that a collective of any size holds while it runs. One object for each World. See zerohop.collectives.

    bell: the slot where somebody rings who has found that calls differ. slice: seconds after which a wait stops for a look. ended:
    by kind, what is returned of a call that has ended.
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
        Waits for the lock. False: another thread held it all the time.
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
    ) -> typing.Any:
        """
        Returns None if nothing has happened: the call is unusual or wrong, or others are under way; `ended[kind]` if it has ended; else
        what has stopped it, as Exchange.run() has it. Stopped, or interrupted by an exception, a call that has begun keeps the lock, and
        stopped() is what goes on. root: None for none.
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
        The same of a send_recv.
        """
    def release(self) -> None:
        """
        Does nothing if another thread holds the lock, or none.
        """
    def started(self) -> None:
        """
        Python has a call under way: until finished() there is none of this kind.
        """
    def stopped(self) -> Exchange | None:
        """
        The Exchange of a call of this thread that has been stopped; None: there is none.
        """
    @property
    def left(self) -> float:
        """
        Seconds, of what has been stopped.
        """
    @property
    def mine(self) -> bool:
        """
        Whether this thread holds the lock.
        """

class DeviceQueue:
    """
    A local array, one of a Peer and the way between them, for kernels: made by ``Peer.device_queue``. Its ``value`` is
    the ``zerohop::device::Queue`` of ``<zerohop/device.cuh>``, found by ``zerohop.include_dir()``.
    """
    def __enter__(self) -> typing.Any: ...
    def __exit__(self, *args) -> None: ...
    def close(self) -> None:
        """
        Kernels must not use it any more: those that were given to the GPU before are waited for, by a thread of its own,
        before anything is unmapped. Idempotent; ``with`` does it, too.
        """
    @property
    def address(self) -> int:
        """
        Where the same lies in the memory of the GPU, for kernels that take a pointer.
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
        Why calls of kernels return ``Status::failed`` from now on; None: nothing has failed.
        """
    @property
    def route(self) -> Route:
        """
        Which way the kernels' bytes go, and why.
        """
    @property
    def value(self) -> typing.Any:
        """
        The plain value that a kernel takes by value: its bytes.
        """
    @property
    def way(self) -> str:
        """
        ``"mapped"``: kernels load and store by themselves. ``"direct"``: they drive a queue pair, which the adapter carries
        out. ``"proxy"``: they write the same entries into a ring that a thread of this process carries out.
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
        Kernels must not use it any more: those that were given to the GPU before are waited for, by a thread of its own,
        before anything is unmapped. Idempotent; ``with`` does it, too.
        """
    @property
    def address(self) -> int:
        """
        Where the same lies in the memory of the GPU, for kernels that take a pointer.
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
        The plain value that a kernel takes by value: its bytes.
        """

def announce_exit() -> None:
    """
    From now on errors end threads other than the calling one quietly.
    """

def ask(peer: Peer, name: str, now: bool = False) -> Inquiry:
    """
    Begins to look memory up. now: that nothing has the name ends it, too, with None.
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
    Seconds of `times` writes, reads, sends or receives with `window` under way.
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
    Seconds until `times` messages have come, of whose receives `posted` are posted already.
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
    Seconds of `times` requests on queue pairs by turns, with `window` posted in all.
    """

def bench_wait_notify(
    endpoint: Endpoint,
    first: typing.SupportsInt | typing.SupportsIndex,
    count: typing.SupportsInt | typing.SupportsIndex,
    batches: typing.SupportsInt | typing.SupportsIndex,
    timeout: typing.SupportsFloat | typing.SupportsIndex,
) -> list[float]:
    """
    Seconds per wait for a notification that is there, the mean of each batch of `count`.
    """

def bench_write_many(
    peer: Peer,
    pairs: collections.abc.Sequence[tuple[Memory, RemoteMemory]],
    times: typing.SupportsInt | typing.SupportsIndex,
    window: typing.SupportsInt | typing.SupportsIndex,
    timeout: typing.SupportsFloat | typing.SupportsIndex,
) -> float:
    """
    Seconds of `times` write_many with `window` under way.
    """

def crc32c(array: typing.Any) -> int:
    """
    The CRC32C (Castagnoli; RFC 3720, B.4) of the bytes of a contiguous array in the host's memory. Kernels that put with
    ``put_notify_checked`` send that of their data as the notification's value (1 for 0).

    Raises TypeError (no array), ValueError (on a GPU, not contiguous).
    """

def device_names() -> list[str]: ...
def dial(endpoint: Endpoint, address: bytes) -> Dial:
    """
    Begins to connect.
    """

def fault_words(text: str) -> dict:
    """
    All words of faults with their values, times in seconds. Raises ValueError.
    """

def find_accepted(
    endpoint: Endpoint, late: typing.SupportsFloat | typing.SupportsIndex | None = None
) -> Peer:
    """
    As accept(), at once: None if nobody has connected yet, or TransferTimeout after `late` seconds.
    """

def find_notify(
    endpoint: Endpoint,
    first: typing.SupportsInt | typing.SupportsIndex,
    count: typing.SupportsInt | typing.SupportsIndex,
    reset: bool,
    late: typing.SupportsFloat | typing.SupportsIndex | None = None,
) -> tuple[int, int] | None:
    """
    As wait_notify_any(), at once: None if nothing is there yet, or TransferTimeout after `late` seconds.
    """

def forget_logs() -> None:
    """
    In a child made by fork(): keep no sentences.
    """

def forget_recording() -> None:
    """
    In a child made by fork().
    """

def gpu_count() -> int:
    """
    How many GPUs the driver shows; 0 without a driver.
    """

def gpu_export_dmabuf(array: typing.Any) -> tuple:
    """
    The pages an array lies in as a dma-buf: a file descriptor, which the caller closes, and the offset of the
    first element in it. Raises CudaError.
    """

def gpu_facts(ordinal: typing.SupportsInt | typing.SupportsIndex) -> dict:
    """
    What the driver says of ``cuda:<ordinal>`` as far as adapters are concerned. write_order: what makes their
    writes visible to a running kernel: nothing (``kept``), a ``flush`` or a ``read`` by the adapter. Raises
    CudaError.
    """

def gpu_memory(array: typing.Any) -> dict:
    """
    The kind of memory an array lies in and the allocation around it: addresses, and chunks as tuples of begin,
    end and buffer id, which no other memory of the process ever has. Raises CudaError, RegistrationError.
    """

def has_kernels() -> bool:
    """
    Whether the kernels of this package were built in: there was nvcc at the build.
    """

def has_nvtx() -> bool:
    """
    Whether transfers are ranges of NVTX in a profiler: its headers were there at the build.
    """

def keep_times(on: bool = True) -> None:
    """
    Whether ``Transfer.times`` are kept, of the Transfers that this process begins from now on. Off unless asked for: they cost
    each of them three looks at the clock. In a notebook a Transfer draws its own.
    """

@typing.overload
def leave_wait(what: Endpoint, id: typing.SupportsInt | typing.SupportsIndex) -> None:
    """
    Ends what watch(), watch_slots() or watch_accept() has begun.
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
    What it has ended with; if it has not, TransferTimeout after `late` seconds.
    """

@typing.overload
def outcome(of: Dial, late: typing.SupportsFloat | typing.SupportsIndex) -> Peer:
    """
    What it has ended with; if it has not, TransferTimeout after `late` seconds.
    """

@typing.overload
def outcome(of: Inquiry, late: typing.SupportsFloat | typing.SupportsIndex) -> RemoteMemory | None:
    """
    What it has ended with; if it has not, TransferTimeout after `late` seconds.
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
    The bound of a call that is given that timeout.
    """

@typing.overload
def seconds(peer: Peer, timeout: typing.SupportsFloat | typing.SupportsIndex | None) -> float:
    """
    The bound of a call that is given that timeout.
    """

def send_logs(bell: typing.SupportsInt | typing.SupportsIndex) -> None:
    """
    Keep sentences for take_logs() from now on, and tell by that eventfd; -1: do not.
    """

def start_recording(most: typing.SupportsInt | typing.SupportsIndex) -> None:
    """
    Record so many events at most. RuntimeError: it is done already.
    """

def stop_recording() -> tuple:
    """
    The events as dicts in the order in which they began, and how many had no room. Their "end" is None for what is
    still under way; times are nanoseconds of time.monotonic_ns().
    """

def take_logs() -> tuple:
    """
    Tuples of level, topic and sentence, and how many were dropped for want of room.
    """

def verbs_devices() -> list[str]:
    """
    Names of the RDMA devices that libibverbs lists, then those of the software HCA.
    """

def wire_text(bytes: bytes) -> str:
    """
    Text from another process as str, fit to be shown: see wire_text.hpp.
    """

DEFAULT_CACHE_ENTRIES: int = 1024
DEFAULT_MESSAGE_BYTES: int = 16384
DEFAULT_MESSAGE_SLOTS: int = 32
DEFAULT_P2P: int = 1
DEFAULT_STAGING_CHUNK: int = 524288
DEVICE_BOARD_NBYTES: int = 32
DEVICE_QUEUE_NBYTES: int = 80
