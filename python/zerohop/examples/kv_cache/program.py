"""The command line of this example."""

from __future__ import annotations

from pathlib import Path

import click
from rich.console import Console

from zerohop.examples import job
from zerohop.examples.command import (
    device_option,
    ended,
    enough_memory,
    json_option,
    only_two,
    where,
)
from zerohop.examples.kv_cache.plan import Plan
from zerohop.examples.kv_cache.rank import Finding, Spec, work
from zerohop.examples.kv_cache.report import print_finding, write_finding

NAME = "kv_cache"
_WORD = 4  # bytes


@click.command(context_settings={"help_option_names": ["-h", "--help"]})
@click.option(
    "--requests",
    default=256,
    show_default=True,
    type=click.IntRange(1, 10**9),
    help="Requests to ask for.",
)
@click.option(
    "--layers",
    default=16,
    show_default=True,
    type=click.IntRange(1, 1024),
    help="Layers of the cache; a request has its blocks in each.",
)
@click.option(
    "--blocks",
    default=512,
    show_default=True,
    type=click.IntRange(1, 1 << 20),
    help="Blocks of each layer; a request has up to a sixteenth of them.",
)
@click.option(
    "--block-bytes",
    "block_nbytes",
    default=16384,
    show_default=True,
    type=click.IntRange(_WORD, 1 << 26),
    help="Bytes of a block, a multiple of 4.",
)
@device_option
@json_option
@click.pass_context
def main(
    context: click.Context,
    requests: int,
    layers: int,
    blocks: int,
    block_nbytes: int,
    device: str | None,
    json_path: Path | None,
) -> None:
    """A paged KV cache: a decode process asks a prefill process for requests, and has their blocks written to it.

    Every block is compared with what prefill computed. Exit status: 0 if all are right, 1 if not, 2 for wrong usage.
    """
    if block_nbytes % _WORD:
        below = block_nbytes - block_nbytes % _WORD
        raise click.UsageError(
            f"--block-bytes {block_nbytes} is no multiple of {_WORD}: use {below} or {below + _WORD}"
        )
    size, spec = only_two(NAME), Spec(Plan(requests, layers, blocks, block_nbytes), where(device))
    if spec.devices == ("cpu",):
        plan = spec.plan
        what = f"two caches of {plan.layers} layers x {plan.blocks} blocks of {plan.block_nbytes} bytes"
        enough_memory(
            what, 2 * plan.cache_nbytes, "fewer --layers, fewer --blocks or smaller --block-bytes"
        )
    context.exit(ended(NAME, lambda: tell(spec, job.run(NAME, work, spec, size), json_path)))


def tell(spec: Spec, finding: Finding | None, json_path: Path | None) -> bool:
    """Whether all is right; of ranks but the first None, which say nothing."""
    if finding is None:
        return True
    print_finding(spec, finding, Console())
    if json_path is not None:
        write_finding(json_path, spec, finding)
    return not finding.wrong
