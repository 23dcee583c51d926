"""A state_dict of a real architecture, published tensor by tensor under its own names, and read back.

The architecture is GPT-2's (Radford et al., 2019) at half its depth, the size of DistilGPT-2: 82 million
parameters, 328 MB of float32. PyTorch builds and initialises it where it is installed; without it NumPy
arrays of the same names and shapes take its place.
"""

from __future__ import annotations

import hashlib
import importlib
import json
import time
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

import zerohop as zh
from zerohop.host import has_torch

WIDTH, LAYERS, HEADS, TOKENS, POSITIONS = 768, 6, 12, 50257, 1024
INITIAL_DEVIATION = 0.02  # as GPT-2 initialises its weights
MANIFEST = (
    "model"  # names and shapes as JSON; published last, so whoever finds it finds all of them
)
SEED = 2


@dataclass
class ModelResult:
    """What one rank holds: `digest` must be the same on all. Rank 0 moves no bytes itself."""

    digest: str
    tensors: int
    nbytes: int
    source: str
    route: str = ""
    read_s: float = 0.0


def names_and_shapes() -> dict[str, tuple[int, ...]]:
    """The state_dict's entries in order, as PyTorch's modules name them."""
    layer = {
        "self_attn.in_proj_weight": (3 * WIDTH, WIDTH),
        "self_attn.in_proj_bias": (3 * WIDTH,),
        "self_attn.out_proj.weight": (WIDTH, WIDTH),
        "self_attn.out_proj.bias": (WIDTH,),
        "linear1.weight": (4 * WIDTH, WIDTH),
        "linear1.bias": (4 * WIDTH,),
        "linear2.weight": (WIDTH, 4 * WIDTH),
        "linear2.bias": (WIDTH,),
        "norm1.weight": (WIDTH,),
        "norm1.bias": (WIDTH,),
        "norm2.weight": (WIDTH,),
        "norm2.bias": (WIDTH,),
    }
    blocks = {
        f"blocks.layers.{i}.{name}": shape for i in range(LAYERS) for name, shape in layer.items()
    }
    return {
        "tokens.weight": (TOKENS, WIDTH),
        "positions.weight": (POSITIONS, WIDTH),
        **blocks,
        "norm.weight": (WIDTH,),
        "norm.bias": (WIDTH,),
    }


def model_nbytes() -> int:
    return sum(4 * int(np.prod(shape)) for shape in names_and_shapes().values())


def torch_state_dict(device: str = "cpu") -> dict[str, Any]:
    """The architecture built of torch.nn, with every parameter drawn anew, as its state_dict."""
    torch: Any = importlib.import_module("torch")  # not a dependency, and slow to import
    nn = torch.nn
    with torch.device(device):
        layer = nn.TransformerEncoderLayer(
            WIDTH, HEADS, 4 * WIDTH, activation="gelu", batch_first=True, norm_first=True
        )
        model = nn.ModuleDict(
            {
                "tokens": nn.Embedding(TOKENS, WIDTH),
                "positions": nn.Embedding(POSITIONS, WIDTH),
                "blocks": nn.TransformerEncoder(layer, LAYERS, enable_nested_tensor=False),
                "norm": nn.LayerNorm(WIDTH),
            }
        )
    if device != "meta":
        generator = torch.Generator().manual_seed(SEED)
        for parameter in model.parameters():
            nn.init.normal_(parameter, std=INITIAL_DEVIATION, generator=generator)
    state: dict[str, Any] = model.state_dict()
    return state


def numpy_state_dict() -> dict[str, npt.NDArray[np.float32]]:
    random = np.random.default_rng(SEED)
    scale = np.float32(INITIAL_DEVIATION)
    return {
        name: random.standard_normal(shape, np.float32) * scale
        for name, shape in names_and_shapes().items()
    }


def publish(endpoint: zh.Endpoint) -> ModelResult:
    """Makes the model and shares each tensor, read-only, under "model/<its name>"."""
    state = torch_state_dict() if has_torch() else numpy_state_dict()
    arrays = {name: np.asarray(tensor) for name, tensor in state.items()}  # zero copy
    for name, tensor in state.items():
        endpoint.share(f"{MANIFEST}/{name}", endpoint.register(tensor, writable=False))
    text = json.dumps({name: array.shape for name, array in arrays.items()})
    manifest = np.frombuffer(text.encode(), np.uint8)
    endpoint.share(MANIFEST, endpoint.register(manifest, writable=False))
    return ModelResult(
        digest=digest(arrays),
        tensors=len(arrays),
        nbytes=sum(array.nbytes for array in arrays.values()),
        source="PyTorch" if has_torch() else "NumPy",
    )


def fetch(endpoint: zh.Endpoint, peer: zh.Peer) -> ModelResult:
    """Reads the manifest, makes room, and reads every tensor of it in one `read_many`."""
    remote_manifest = peer.lookup(MANIFEST)
    with endpoint.empty(remote_manifest.shape, "uint8") as landing:
        peer.read(remote_manifest, landing).wait()
        shapes: dict[str, list[int]] = json.loads(np.asarray(landing).tobytes())
    remotes = {name: peer.lookup(f"{MANIFEST}/{name}") for name in shapes}
    memories = {name: endpoint.empty(tuple(shape), "float32") for name, shape in shapes.items()}
    begin = time.perf_counter()
    peer.read_many([(remotes[name], memories[name]) for name in shapes]).wait()
    elapsed = time.perf_counter() - begin
    largest = max(shapes, key=lambda name: memories[name].nbytes)
    result = ModelResult(
        digest=digest({name: np.asarray(memory) for name, memory in memories.items()}),
        tensors=len(memories),
        nbytes=sum(memory.nbytes for memory in memories.values()),
        source="",
        route=str(peer.route(memories[largest], remotes[largest])),
        read_s=elapsed,
    )
    for memory in memories.values():
        memory.close()
    return result


def digest(arrays: dict[str, npt.NDArray[Any]]) -> str:
    """BLAKE2b over names, shapes and bytes, in the order of names."""
    total = hashlib.blake2b(digest_size=16)
    for name in sorted(arrays):
        array = arrays[name]
        total.update(f"{name} {array.dtype} {array.shape}\n".encode())
        total.update(np.ascontiguousarray(array).data.cast("B"))
    return total.hexdigest()
