"""A trainer, rank 0, pushes the parameters of a model to readers, which use one version while the next one arrives.

Each reader has two copies. When it switches to a version it reports that, and the other copy may be written. A reader that
dies half-way (--kill RANK) is dropped, and the others continue. The model is PyTorch's if that is installed, else NumPy's.
"""

import argparse
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from importlib import import_module, util
from typing import Any

import numpy as np

import zerohop as zh

LAUNCHED = ("WORLD_SIZE", "OMPI_COMM_WORLD_SIZE", "PMI_SIZE", "SLURM_STEP_NUM_TASKS")
USED, DONE = 0, 1  # tags of messages to the trainer


def train(parameters: Any, version: int, xp: Any) -> None:
    """Makes this version from the previous one. Each product is exact, so all devices compute the same bits."""
    for parameter in parameters:
        if version == 1:
            parameter[...] = xp.arange(len(parameter) ** 2).reshape(parameter.shape)
        parameter[...] = parameter * 0.5 + version


def push(world: zh.World, layers: int, width: int, versions: int, killed: int) -> None:
    xp: Any = import_module("torch") if util.find_spec("torch") else np
    parameters: list[Any] = [np.empty((width, width), np.float32) for _ in range(layers)]
    if xp is not np:  # the weights of a model, in place
        linear = (xp.nn.Linear(width, width, device=world.gpu) for _ in range(layers))
        parameters = [layer.weight.detach() for layer in xp.nn.Sequential(*linear)]
    sources = [world.endpoint.register(parameter) for parameter in parameters]
    readers = {rank: world.peer(rank) for rank in range(1, world.size)}
    copies = {rank: peer.lookup("copies") for rank, peer in readers.items()}
    word, written, begin = np.empty(1, np.int64), {}, time.perf_counter()

    @contextmanager
    def unless_lost(rank: int) -> Iterator[zh.Peer]:
        try:
            yield readers[rank]
        except zh.PeerLost as error:
            print(f"LOST: reader {rank} at version {version}: {error}")
            del readers[rank]

    for version in range(1, versions + 1):
        train(parameters, version, xp)
        if sources[0].device != "cpu":
            xp.cuda.synchronize(world.gpu)  # transfers do not wait for PyTorch's streams
        for rank in list(readers):
            with unless_lost(rank) as peer:
                if version > 1:
                    peer.recv(word, tag=USED).wait()  # it uses the previous version
                pairs = [(source, copies[rank][version % 2, k]) for k, source in enumerate(sources)]
                written[rank] = peer.write_many(pairs, notify=(version % 2, version))
        for rank in list(readers):
            with unless_lost(rank):
                written[rank].wait()
    each = (time.perf_counter() - begin) / versions
    for rank in list(readers):
        with unless_lost(rank) as peer:
            peer.recv(word, tag=DONE).wait()
    if len(readers) < world.size - 1 - bool(killed):
        sys.exit("WRONG: a reader was lost")
    print(f"{versions} versions of {layers} layers of {xp.__name__}, {width} x {width} float32")
    print(f"{each * 1e3:.2f} ms each, {written[1].route}")
    print(f"Every version at {len(readers)} readers equals the trainer's, bit for bit.")


def read(world: zh.World, layers: int, width: int, versions: int, killed: int) -> None:
    torch: Any = import_module("torch") if world.gpu != "cpu" and util.find_spec("torch") else None
    device = world.gpu if torch else "cpu"
    memory = world.endpoint.empty((2, layers, width, width), "float32", device=device)
    world.endpoint.share("copies", memory)
    trainer, right = world.peer(0), np.empty((layers, width, width), np.float32)
    for version in range(1, versions + 1):
        world.endpoint.wait_notify(version % 2)  # all parameters arrive before it
        if world.rank == killed and version > versions // 2:
            os._exit(0)  # as if it was killed: without goodbye
        trainer.send(np.array([version]), tag=USED).wait()  # the other copy may be written
        copy = memory[version % 2]
        found = torch.from_dlpack(copy).cpu().numpy() if torch else np.asarray(copy)
        train(right, version, np)
        if wrong := np.count_nonzero(found.view(np.uint32) != right.view(np.uint32)):
            sys.exit(f"WRONG: {wrong} parameters of version {version} at reader {world.rank}")
    trainer.send(np.array([versions]), tag=DONE)  # close() waits for it


def start(ranks: int) -> int:
    """Without a launcher, starts this program once for each rank."""
    with tempfile.TemporaryDirectory() as store:  # where the ranks meet
        job = {**os.environ, "WORLD_SIZE": str(ranks), "STORE": store}
        numbers = [{"RANK": str(rank), "LOCAL_RANK": str(rank)} for rank in range(ranks)]
        command = [sys.executable, *sys.orig_argv[1:]]
        started = [subprocess.Popen(command, env=job | number) for number in numbers]
        return max(abs(process.wait()) for process in started)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    for name, default in {"layers": 8, "width": 512, "versions": 20, "ranks": 4, "kill": 0}.items():
        parser.add_argument(f"--{name}", type=int, default=default)
    options = parser.parse_args()
    if not any(map(os.environ.get, LAUNCHED)):
        sys.exit(start(options.ranks))
    with zh.World.from_env(os.environ.get("STORE")) as world:
        role = push if world.rank == 0 else read
        role(world, options.layers, options.width, options.versions, options.kill)


if __name__ == "__main__":
    main()
