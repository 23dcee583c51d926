"""The steps of `zerohop verify --adapter` with a GPU that take no kernel, on a simulated adapter: a line of JSON for each."""

import dataclasses
import json
import sys

from zerohop.verify.adapter import on_gpu
from zerohop.verify.adapter.runner import perform
from zerohop.verify.adapter.setup import Setup, Spec


def main(device: str) -> None:
    setup = Setup(Spec(device, b"", quick=True))
    for step in on_gpu.STEPS.all:
        if step.name.startswith(("gpu memory", "gpudirect")):
            print(json.dumps(dataclasses.asdict(perform(setup, step))))
    setup.close()


if __name__ == "__main__":
    main(sys.argv[1])
