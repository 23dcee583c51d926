"""The model that is trained: of PyTorch, or, without it, of NumPy arrays."""

from __future__ import annotations

from importlib import import_module
from typing import Any

import numpy as np

from zerohop.examples.weights.plan import RATE, Floats, Plan
from zerohop.host import has_torch

__all__ = ["Model", "model_of"]


class NumpyModel:
    """parameters: each flat, on the device."""

    framework = "NumPy"

    def __init__(self, plan: Plan, device: str) -> None:
        first = plan.gradients(0)
        self._places = list(plan.places())
        self.parameters: list[Any] = [first[place].copy() for place in self._places]

    def step(self, gradients: Floats) -> None:
        """The parameters are there when it returns."""
        for parameter, place in zip(self.parameters, self._places, strict=True):
            parameter -= np.float32(RATE) * gradients[place]


class TorchModel:
    """Linear layers and an optimizer. parameters: each flat, on the device, the tensors of the model itself."""

    framework = "PyTorch"

    def __init__(self, plan: Plan, device: str) -> None:
        self._torch: Any = import_module("torch")
        if device != "cpu":
            self._torch.cuda.set_device(device)
        linear = self._torch.nn.Linear
        layers = (linear(plan.width, plan.width, device=device) for _ in range(plan.layers))
        self._model = self._torch.nn.Sequential(*layers)
        self._own = list(self._model.parameters())
        self._optimizer = self._torch.optim.SGD(self._own, lr=RATE)
        self._places = list(plan.places())
        self.parameters: list[Any] = [parameter.detach().view(-1) for parameter in self._own]
        for parameter, values in zip(self.parameters, self._cut(plan.gradients(0)), strict=True):
            parameter.copy_(values)
        self._finish()

    def step(self, gradients: Floats) -> None:
        """As after a backward pass. The parameters are there when it returns."""
        for parameter, values in zip(self._own, self._cut(gradients), strict=True):
            parameter.grad = values.to(parameter.device).view(parameter.shape)
        self._optimizer.step()
        self._finish()

    def _cut(self, values: Floats) -> list[Any]:
        flat = self._torch.from_numpy(values)
        return [flat[place] for place in self._places]

    def _finish(self) -> None:
        if self._torch.cuda.is_available():
            self._torch.cuda.synchronize()  # transfers begin outside of PyTorch's streams


Model = NumpyModel | TorchModel


def model_of(plan: Plan, device: str) -> Model:
    return TorchModel(plan, device) if has_torch() else NumpyModel(plan, device)
