"""The options of `zerohop verify`. What it runs is imported when it runs, so that --help is quick."""

from __future__ import annotations

import math
from typing import Any

import click
from click.core import ParameterSource

from zerohop.bench.command import device_option

ROUTES = ("host", "p2p", "gpudirect", "staged")
STDOUT = "-"
FIRST = "-"  # of --adapter without a device
ANY = "-"  # of --listen without a place
OF_ADAPTER = {"adapter", "to", "quick", "json", "peer", "listen"}


def parse_address(
    context: click.Context, option: click.Parameter, text: str | None
) -> bytes | None:
    """Of an Endpoint, or of `verify --adapter --listen`."""
    if text is None:
        return None
    from zerohop.doctor.far_end import checked

    try:
        return checked(text)
    except ValueError as error:
        raise click.BadParameter(str(error)) from None


def _parse_peer(context: click.Context, option: click.Parameter, text: str | None) -> bytes | None:
    if text is None:
        return None
    from zerohop.doctor.far_end import MAGIC, checked
    from zerohop.verify.adapter.channel import MAGIC as OF_ADAPTER_MAGIC

    try:
        return checked(text, (MAGIC, OF_ADAPTER_MAGIC))
    except ValueError as error:
        raise click.BadParameter(str(error)) from None


def _finite(context: click.Context, option: click.Parameter, number: float) -> float:
    """FloatRange accepts nan and inf."""
    if not math.isfinite(number):
        raise click.BadParameter(f"{number} is not a finite number")
    return number


def _parse_bytes(context: click.Context, option: click.Parameter, text: str) -> int:
    from zerohop.bench.command import parse_size

    try:
        return parse_size(text)
    except ValueError as error:
        raise click.BadParameter(str(error)) from None


@click.command()
@click.option(
    "--minutes",
    default=1.0,
    show_default=True,
    type=click.FloatRange(min=0),
    callback=_finite,
    help="Duration; every pattern runs at least once.",
)
@click.option(
    "--route",
    "routes",
    multiple=True,
    type=click.Choice(ROUTES),
    help="Test only these routes; all of them must exist. Default: all available routes.",
)
@click.option(
    "--size",
    "nbytes",
    default="64M",
    show_default=True,
    callback=_parse_bytes,
    help="Size of the memory for each route; between hosts that of --listen.",
)
@click.option(
    "--seed", type=click.IntRange(min=0), help="Seed of the random numbers. Default: any."
)
@click.option(
    "--json",
    "json",
    is_flag=False,
    flag_value=STDOUT,
    metavar="[FILE]",
    help="Print everything as JSON; with --adapter also into FILE, beside the page.",
)
@click.option(
    "--peer",
    callback=_parse_peer,
    metavar="ADDRESS",
    help="The other end: the output of its --listen, or @FILE that contains it. Default: a second process here.",
)
@click.option(
    "--listen",
    is_flag=False,
    flag_value=ANY,
    metavar="[HOST:PORT]",
    help="Be the other end: print an address and serve. HOST:PORT, with --adapter: where.",
)
@device_option
@click.option(
    "--adapter",
    is_flag=False,
    flag_value=FIRST,
    metavar="[DEVICE[:PORT]]",
    help="Verify an RDMA device step by step instead, and print a report to be pasted. Default: the first device.",
)
@click.option(
    "--to",
    metavar="DEVICE[:PORT]",
    help="With --adapter: the other end is this device, or port, of this host.",
)
@click.option("--quick", is_flag=True, help="With --adapter: shorter loops.")
@click.pass_context
def verify(context: click.Context, /, **options: Any) -> None:
    """Test memory and the routes to it, like a memory tester: write patterns, read them back and compare.

    Between two processes of this host, or with --listen on one host and --peer on another. Ranges and
    alignments are random. Every transfer is compared by checksums of both ends, the data read back byte for byte, and at the end
    all of the memory. Exit status: 0 if nothing was wrong; 1 if something was, or a named route is not available;
    2 if the settings are wrong; 130 after Ctrl-C, which shows the results so far.

    With --adapter: what an RDMA device can do, one step after the other, with cause and remedy. Exit status: 0 if no
    step failed; 1 if one did.
    """
    given = {
        name
        for name in options
        if context.get_parameter_source(name) is not ParameterSource.DEFAULT
    }
    if options["adapter"] is not None:
        context.exit(_verify_adapter(given, options))
    for name in ("to", "quick"):
        if name in given:
            raise click.UsageError(f"--{name} takes --adapter")
    context.exit(_verify_memory(given, options))


def _verify_adapter(given: set[str], options: dict[str, Any]) -> int:
    if given - OF_ADAPTER:
        strange = " ".join(f"--{name}" for name in sorted(given - OF_ADAPTER))
        raise click.UsageError(f"--adapter cannot be combined with {strange}")
    if options["peer"] is not None and options["to"]:
        raise click.UsageError(
            "--to is a device of this host, --peer one of another: give one of them"
        )
    from zerohop.errors import Error
    from zerohop.verify.adapter import command

    device = "" if options["adapter"] == FIRST else options["adapter"]
    try:
        if options["listen"] is not None:
            if given - {"adapter", "listen"}:
                raise click.UsageError("--listen with --adapter can be combined with nothing else")
            command.listen(device, "" if options["listen"] == ANY else options["listen"])
            return 0
        made = command.Options(
            device, options["to"] or "", options["peer"], options["quick"], options["json"] or ""
        )
        return 0 if command.run(made) else 1
    except (ValueError, OSError) as error:
        raise click.UsageError(str(error)) from None
    except Error as error:
        raise click.ClickException(str(error)) from None


def _verify_memory(given: set[str], options: dict[str, Any]) -> int:
    from zerohop.errors import Error

    for name in ("adapter", "to", "quick"):
        del options[name]
    if options["json"] not in (None, STDOUT):
        raise click.UsageError("--json FILE takes --adapter; else it goes to the output")
    listen = options.pop("listen")
    if listen not in (None, ANY):
        raise click.UsageError("--listen HOST:PORT takes --adapter; else it has no value")
    if listen is not None:
        if given - {"listen", "nbytes", "device"}:
            raise click.UsageError("--listen can be combined only with --size and --verbs")
        from zerohop.verify import target

        try:
            target.listen(options["device"], options["nbytes"])
        except (Error, ValueError) as error:
            raise click.ClickException(str(error)) from None
        return 0
    from rich.console import Console

    from zerohop.verify import command

    options["as_json"] = options.pop("json") is not None
    made = command.Options(**options)
    try:
        endpoint = command.open_endpoint(made)
    except (Error, ValueError) as error:
        raise click.UsageError(str(error)) from None
    return 0 if command.run(made, endpoint, Console()) else 1
