"""Percentiles of measured times, the same ones everywhere."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

PERCENTILES = (50, 90, 99)


def percentiles(samples: Sequence[float] | npt.NDArray[np.float64]) -> dict[str, float]:
    """{"p50": ..., "p90": ..., "p99": ..., "mean": ...} in the unit of `samples`, which is not empty."""
    values = np.percentile(samples, PERCENTILES)
    named = {f"p{rank}": float(value) for rank, value in zip(PERCENTILES, values, strict=True)}
    return {**named, "mean": float(np.mean(samples))}
