"""A process group of torch.distributed whose ranks exchange tensors by zerohop."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from datetime import timedelta
from functools import partial
from typing import Any, NamedTuple

from zerohop.torch.advice import ADVICE
from zerohop.torch.calls import Calls
from zerohop.torch.foreign import c10d, dist, torch
from zerohop.torch.forms import FORMS, with_options
from zerohop.torch.monitored import monitored_barrier
from zerohop.torch.untraced import untraced
from zerohop.torch.window import Window
from zerohop.world import World

_NAME = "zerohop"
_DEVICES = ("cpu", "cuda")
_OTHERS = ("gloo", "nccl", "mpi", "ucc")  # PyTorch's own backends
_GOODBYE = 2.0  # seconds for the others to leave, too, in total over several groups
_LEAVE = 10.0  # seconds for posted operations to finish when a group is destroyed
_SHOWN = 8  # most global ranks in the name of a group


_together_until = 0.0  # by the monotonic clock: end of consecutive goodbyes


def _left_for_goodbye() -> float:
    global _together_until
    now = time.monotonic()
    if now > _together_until + _GOODBYE:
        _together_until = now + _GOODBYE
    return max(0.0, _together_until - now)


class Beside(NamedTuple):
    """The backend of each type of device. group: holds the other backends; None if there are none."""

    backends: Mapping[str, str]
    group: Any


def creators() -> Iterator[tuple[str, Mapping[str, str], Callable[..., ProcessGroup]]]:
    """Each string of backends with zerohop in it, its backend by type of device, and the group's constructor.

    torch.distributed would make the backends of a string one by one, and drop the others for a group that is made in
    Python. It passes a string that is registered as a whole to its creator. One that has zerohop for all devices makes one group.
    """
    yield _NAME, *_creator(dict.fromkeys(_DEVICES, _NAME))
    for first, second in (_DEVICES, _DEVICES[::-1]):
        yield f"{first}:{_NAME}", *_creator({first: _NAME})
        for other in _OTHERS:
            yield f"{first}:{_NAME},{second}:{other}", *_creator({first: _NAME, second: other})
            yield f"{first}:{other},{second}:{_NAME}", *_creator({first: other, second: _NAME})


def _creator(backends: Mapping[str, str]) -> tuple[Mapping[str, str], Callable[..., ProcessGroup]]:
    return backends, partial(create, backends)


def create(backends: Mapping[str, str], options: Any, _: Any = None) -> ProcessGroup:
    """Called by torch.distributed, with the options of one group. backends: by type of device."""
    store, rank, size = options.store, options.group_rank, options.group_size
    beside = Beside(backends, _others(backends, options))
    ranks = list(options.global_ranks_in_group)
    name = f"group {options.group_id}"
    if ranks and ranks != list(range(size)):
        shown = ", ".join(map(str, ranks[:_SHOWN])) + (", ..." if len(ranks) > _SHOWN else "")
        name += f" (whose rank 0 and so on are global ranks {shown})"
    seconds = options.timeout.total_seconds()
    whole = _whole()
    if whole is not None:
        world = whole.split(ranks, name=name)
    else:
        # A store may serve several groups in turn: the n-th group of one rank is the n-th of all.
        number = store.add(f"zerohop/groups of rank {rank}", 1)
        store = dist.PrefixStore(f"zerohop/{number}", store)
        world = GroupWorld(store, rank, size, name=name, timeout=seconds)
    return ProcessGroup(world, seconds, beside, options)


def _whole() -> World | None:
    """The World of all ranks, whose connections the other groups use; None: the default group is not made yet, or of another backend."""
    default = dist.group.WORLD if dist.is_initialized() else None
    if not isinstance(default, ProcessGroup) or default.world.closed:
        return None
    return default.world


def _others(backends: Mapping[str, str], options: Any) -> Any:
    """A group of the backends that are not zerohop; None if there is none."""
    others = {device: name for device, name in backends.items() if name != _NAME}
    if not others:
        return None
    group = dist.ProcessGroup(options.store, options.group_rank, options.group_size)
    for device, name in others.items():
        if name not in _MAKERS:
            raise ValueError(
                f"zerohop can share a group with {' or '.join(_MAKERS)}, not with {name}: make a second one, "
                f'new_group(backend="{name}")'
            )
        if not dist.is_backend_available(name):
            raise ValueError(f"this PyTorch has no {name}")
        kind, backend = _MAKERS[name](dist.PrefixStore(f"{device}/", options.store), options)
        group._set_default_backend(kind)
        group._register_backend(torch.device(device), kind, backend)
    return group


def _gloo(store: Any, options: Any) -> tuple[Any, Any]:
    rank, size = options.group_rank, options.group_size
    backend = dist.ProcessGroupGloo(store, rank, size, timeout=options.timeout)
    backend._set_sequence_number_for_group()
    return dist.ProcessGroup.BackendType.GLOO, backend


def _nccl(store: Any, options: Any) -> tuple[Any, Any]:
    chosen = dist.ProcessGroupNCCL.Options()
    chosen._timeout = options.timeout
    chosen.global_ranks_in_group = options.global_ranks_in_group
    chosen.group_name = options.group_id
    backend = dist.ProcessGroupNCCL(store, options.group_rank, options.group_size, chosen)
    backend._set_sequence_number_for_group()
    return dist.ProcessGroup.BackendType.NCCL, backend


_MAKERS = {"gloo": _gloo, "nccl": _nccl}


def _routed(name: str) -> Callable[..., Any]:
    """The call of that name, passed to the backend of the tensors' device."""

    @untraced
    def call(self: ProcessGroup, *args: Any, **kwargs: Any) -> Any:
        if name in FORMS:
            args, kwargs = with_options(name, args, kwargs), {}
        return getattr(self._serving(args, name), name)(*args, **kwargs)

    call.__name__ = name
    return call


def _type_of(args: Any) -> str | None:
    """The type of device of the first tensor among them."""
    for each in args:
        if isinstance(each, torch.Tensor):
            kind: str = each.device.type
            return kind
        if isinstance(each, (list, tuple)) and (found := _type_of(each)) is not None:
            return found
    return None


def registered(group: Any, backends: Mapping[str, str]) -> Any:
    """A Backend for the hooks that PyTorch 2.15 attaches to each group, which ask its default backend; None before. It carries out no call."""
    if not hasattr(dist.ProcessGroup, "supports_abort_hooks"):
        return None
    backend, kind = _Registered(group.rank(), group.size()), dist.ProcessGroup.BackendType.CUSTOM
    group._set_default_backend(kind)
    for device in (device for device, name in backends.items() if name == _NAME):
        group._register_backend(torch.device(device), kind, backend)
    return backend


class _Registered(c10d.Backend):  # type: ignore[misc]
    def getBackendName(self) -> str:
        return _NAME


class GroupWorld(World):
    """A World whose messages advise what a program of torch.distributed can do."""

    _advice = ADVICE


class ProcessGroup(dist.ProcessGroup):  # type: ignore[misc]
    """Made by ``init_process_group`` and ``new_group``. ``world``: the World of its ranks, whose collectives belong to the group."""

    def __init__(self, world: World, seconds: float, beside: Beside, made_with: Any) -> None:
        super().__init__(world.rank, world.size)
        self.world, self._made_with = world, made_with
        self._calls, self._beside = Calls(world, seconds), beside
        self._name = self._description = ""
        self._monitored = 0  # calls of monitored_barrier()
        self._registered = registered(self, beside.backends)
        self._windows: list[Window] = []

    broadcast = _routed("broadcast")
    scatter = _routed("scatter")
    gather = _routed("gather")
    allgather = _routed("allgather")
    allgather_coalesced = _routed("allgather_coalesced")
    all_gather_single = _routed("all_gather_single")
    all_gather_single_coalesced = _routed("all_gather_single_coalesced")
    all_to_all_single = _routed("all_to_all_single")
    alltoall = _routed("alltoall")
    send = _routed("send")
    recv = _routed("recv")
    recv_anysource = _routed("recv_anysource")
    # Names before PyTorch 2.13.
    _allgather_base = _routed("_allgather_base")
    allgather_into_tensor_coalesced = _routed("allgather_into_tensor_coalesced")
    alltoall_base = _routed("alltoall_base")

    allreduce = _routed("allreduce")
    allreduce_coalesced = _routed("allreduce_coalesced")
    reduce = _routed("reduce")
    reduce_scatter = _routed("reduce_scatter")
    reduce_scatter_single = _routed("reduce_scatter_single")
    reduce_scatter_single_coalesced = _routed("reduce_scatter_single_coalesced")
    # Names before PyTorch 2.13.
    _reduce_scatter_base = _routed("_reduce_scatter_base")
    reduce_scatter_tensor_coalesced = _routed("reduce_scatter_tensor_coalesced")

    @untraced
    def barrier(self, *args: Any, **kwargs: Any) -> Any:
        return self._calls.barrier(*with_options("barrier", args, kwargs))

    def monitored_barrier(
        self, timeout: timedelta | None = None, wait_all_ranks: bool = False
    ) -> None:
        """As barrier(), on CPUs; rank 0 names the first rank, or all ranks, that did not come. PyTorch 2.14 calls it, earlier ones gloo's."""
        self._monitored += 1
        seconds = self._calls.seconds if timeout is None else timeout.total_seconds()
        monitored_barrier(self._calls, self._monitored, seconds, wait_all_ranks)

    # --- windows: torch.distributed._new_window, from PyTorch 2.14 on ---

    supports_window = True

    def new_window(self, tensor: Any = None) -> Window:
        """All ranks call it, in the same order. It ends with the group, or by its tensor_deregister()."""
        name = f"window {len(self._windows)} of {self.world.name!r}"
        window = Window(self.world, name, self._calls.seconds)
        self._windows.append(window)
        if tensor is not None:
            window.tensor_register(tensor)
        return window

    def _serving(self, args: Any, name: str) -> Any:
        device = _type_of(args)
        backend = self._beside.backends.get(device or "cpu")
        if backend == _NAME:
            return self._calls
        if backend is not None:
            return self._beside.group
        served = ", ".join(f"{each}:{by}" for each, by in self._beside.backends.items())
        raise ValueError(f"{name} of {device} tensors: the group has backends only for {served}")

    # --- called by torch.distributed ---

    @property
    def _device_types(self) -> list[Any]:
        return [torch.device(each) for each in self._beside.backends]

    def _get_backend(self, device: Any) -> Any:
        kind = torch.device(device).type
        if self._beside.backends.get(kind, _NAME) == _NAME:
            return self
        return self._beside.group._get_backend(device)

    supports_coalescing = supports_time_estimate = False

    # --- split_group: before 2.15 PyTorch allows it on hosts with GPUs, after init_process_group(device_id=...) ---

    supports_splitting = hasattr(
        dist.ProcessGroup, "split_group"
    )  # an earlier PyTorch has it for NCCL only
    options = None  # of the backend; PyTorch passes a copy to split_group()

    def eager_connect_single_device(self, device: Any) -> None:
        """From PyTorch 2.14 on new_group() asks a group with a bound device for a Backend in C++; split_group() needs none from 2.15 on."""
        if not hasattr(dist.ProcessGroup, "supports_window"):
            self.bound_device_id = device

    def split_group(
        self,
        new_ranks: Sequence[int],
        timeout: timedelta | None = None,
        opts: Any = None,
        group_name: str | None = None,
        group_desc: str | None = None,
        device_types: Sequence[Any] | None = None,
    ) -> ProcessGroup | None:
        """A group of those ranks of this one, in that order; None on other ranks. Only the members wait for each other."""
        ranks, mine = list(new_ranks), self._made_with
        if self.world.rank not in ranks:
            return None
        options = c10d._DistributedBackendOptions()
        options.store = dist.PrefixStore(f"{group_name}/", mine.store)
        options.group_rank, options.group_size = ranks.index(self.world.rank), len(ranks)
        options.timeout = timeout or mine.timeout
        options.group_id = group_name
        above = list(mine.global_ranks_in_group)
        options.global_ranks_in_group = [above[rank] for rank in ranks] if above else ranks
        kept = None if device_types is None else {device.type for device in device_types}
        backends = {
            device: name
            for device, name in self._beside.backends.items()
            if kept is None or device in kept
        }
        group = create(backends, options)
        group._set_group_name(options.group_id)
        group._set_group_desc(group_desc or f"{self._description}:split")
        return group

    def get_group_store(self) -> Any:
        return self._made_with.store

    def perform_nocolor_split(self, device: Any) -> None:
        """What ranks outside a new group would have to do for it."""

    def _set_sequence_number_for_group(self) -> None:
        """A World numbers its calls itself."""

    # PyTorch keeps both names in backends, which a Python group lacks.

    def _set_group_name(self, name: str) -> None:
        self._name = name
        if self._beside.group is not None:
            self._beside.group._set_group_name(name)

    def _set_group_desc(self, description: str) -> None:
        self._description = description
        if self._beside.group is not None:
            self._beside.group._set_group_desc(description)

    def getGroupName(self) -> str:
        return self._name

    def getGroupDesc(self) -> str:
        return self._description

    group_name, group_desc = property(getGroupName), property(getGroupDesc)

    def getBackendName(self) -> str:
        return _NAME

    def set_timeout(self, timeout: timedelta) -> None:
        """Sets the timeout of later calls."""
        self._calls.seconds = timeout.total_seconds()

    _set_default_timeout = set_timeout

    def shutdown(self) -> None:
        """Waits a moment for the others to shut down, too. After that they get PeerLost if they still need this rank."""
        if self._beside.group is not None:
            self._beside.group.shutdown()
        if not self.world.closed:
            self._calls.say_goodbye(min(_left_for_goodbye(), self._calls.seconds))
        self._close_windows()
        self.world.close(min(_LEAVE, self._calls.seconds))
        self._calls.any_source.close()

    def abort(self) -> None:
        if self._beside.group is not None:
            self._beside.group.abort()
        self._close_windows()
        self.world.close(0.0)
        self._calls.any_source.close()

    def _close_windows(self) -> None:
        for window in self._windows:
            window.close()

    def __repr__(self) -> str:
        return f"<zerohop.torch.ProcessGroup of {self.world!r}>"
