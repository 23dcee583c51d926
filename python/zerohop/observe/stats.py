"""Percentiles of measured times, the same everywhere, and the error of a median."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

PERCENTILES = (50, 90, 99)


def percentiles(samples: Sequence[float] | npt.NDArray[np.float64]) -> dict[str, float]:
    """{"p50": ..., "p90": ..., "p99": ..., "mean": ...} in the unit of `samples`, which is not empty."""
    values = np.percentile(samples, PERCENTILES)
    named = {f"p{rank}": float(value) for rank, value in zip(PERCENTILES, values, strict=True)}
    return {**named, "mean": float(np.mean(samples))}


def median_error(samples: Sequence[float] | npt.NDArray[np.float64]) -> float:
    """Standard error of their median, from the median absolute deviation: outliers weigh little.

    As for a normal distribution, whose standard deviation is 1.4826 times that deviation, and whose
    median has sqrt(pi / 2) times the standard error of the mean.
    """
    values = np.asarray(samples)
    distance = float(np.median(np.abs(values - np.median(values))))
    return 1.4826 * distance * math.sqrt(math.pi / 2 / len(values))
