"""The forms in which a program may call a process group itself: ``group.allreduce([t])``, ``group.broadcast(t, 0)``, ..."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

from zerohop.torch.foreign import c10d, torch


class Form(NamedTuple):
    """options: type of the last argument. given: number of arguments before it. instead: what may be in its place."""

    options: Any
    given: int
    instead: tuple[str, ...] = ("timeout",)


_GATHERED = Form(c10d.AllgatherOptions, 2)
_SCATTERED = Form(c10d.ReduceScatterOptions, 2)
_EXCHANGED = Form(c10d.AllToAllOptions, 4)
_NAMES = {"root": "rootRank", "op": "reduceOp", "timeout": "timeout"}  # of options

FORMS: dict[str, Form] = {
    "broadcast": Form(c10d.BroadcastOptions, 1, ("root", "timeout")),
    "scatter": Form(c10d.ScatterOptions, 2, ("root", "timeout")),
    "gather": Form(c10d.GatherOptions, 2, ("root", "timeout")),
    "allgather": _GATHERED,
    "allgather_coalesced": _GATHERED,
    "all_gather_single": _GATHERED,
    "all_gather_single_coalesced": _GATHERED,
    "all_to_all_single": _EXCHANGED,
    "alltoall": Form(c10d.AllToAllOptions, 2),
    "allreduce": Form(c10d.AllreduceOptions, 1, ("op", "timeout")),
    "allreduce_coalesced": Form(c10d.AllreduceCoalescedOptions, 1),
    "reduce": Form(c10d.ReduceOptions, 1, ("root", "op", "timeout")),
    "reduce_scatter": Form(c10d.ReduceScatterOptions, 2, ("op", "timeout")),
    "reduce_scatter_single": _SCATTERED,
    "reduce_scatter_single_coalesced": _SCATTERED,
    "barrier": Form(c10d.BarrierOptions, 0),
    # Names before PyTorch 2.13.
    "_allgather_base": _GATHERED,
    "allgather_into_tensor_coalesced": _GATHERED,
    "alltoall_base": _EXCHANGED,
    "_reduce_scatter_base": _SCATTERED,
    "reduce_scatter_tensor_coalesced": _SCATTERED,
}
_OPTIONS = tuple({form.options for form in FORMS.values()})
_IN_LISTS = {"broadcast", "scatter", "gather", "allgather", "allreduce", "reduce", "reduce_scatter"}


def with_options(name: str, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> tuple[Any, ...]:
    """The arguments of that call as torch.distributed passes them: lists of tensors, and options. Raises TypeError."""
    form = FORMS[name]
    given, rest = args[: form.given], args[form.given :]
    if len(rest) == 1 and isinstance(rest[0], _OPTIONS) and not kwargs:
        return args
    if len(given) < form.given:
        raise TypeError(f"{name}: {form.given} arguments and options, not {len(given)}")
    if name in _IN_LISTS and any(isinstance(each, torch.Tensor) for each in given):
        given = tuple([each] for each in given)
    names = form.instead if not rest or not isinstance(rest[0], _OPTIONS) else ("opts",)
    named: dict[str, Any] = dict(zip(names, rest, strict=False)) | {**kwargs}
    options = named.pop("opts", None) or form.options()
    if len(rest) > len(names) or not named.keys() <= {*form.instead}:
        raise TypeError(f"{name}: after the tensors come options, or {', '.join(form.instead)}")
    for each, value in named.items():
        if value is not None:
            setattr(options, _NAMES[each], value)
    return *given, options
