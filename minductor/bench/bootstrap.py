"""Medians, geometric means and their 95% intervals by resampling.

Takes: paired samples. Gives: `Estimate(value, low, high)`; the same samples always give the same interval (seeded).
Refuses: samples of different length, and none at all.

>>> ratio([2.0, 2.2, 1.8], [1.0, 1.0, 1.0])
Estimate(value=2.0, low=1.8, high=2.2)
"""

import math
import random
import statistics
from collections.abc import Callable, Sequence
from dataclasses import dataclass

RESAMPLES = 2000
TAIL = 0.025  # on each side


@dataclass(frozen=True, slots=True)
class Estimate:
    """A figure and the ends of its 95% interval."""

    value: float
    low: float
    high: float


def interval(value: float, draw: Callable[[random.Random], float]) -> Estimate:
    """The percentile interval of what `draw` gives on resampled data."""
    source = random.Random(0)
    drawn = sorted(draw(source) for _ in range(RESAMPLES))
    cut = int(RESAMPLES * TAIL)
    return Estimate(value, drawn[cut], drawn[-1 - cut])


def median(samples: Sequence[float]) -> Estimate:
    """The median of the samples."""
    if not samples:
        raise ValueError("no samples")
    count = len(samples)
    return interval(statistics.median(samples), lambda source: statistics.median(source.choices(samples, k=count)))


def paired(numerators: Sequence[float], denominators: Sequence[float]) -> list[float]:
    """The ratio of each round: noise that hits the whole round cancels."""
    if len(numerators) != len(denominators):
        raise ValueError(f"{len(numerators)} samples cannot be paired with {len(denominators)}")
    return [a / b for a, b in zip(numerators, denominators, strict=True)]


def ratio(numerators: Sequence[float], denominators: Sequence[float]) -> Estimate:
    """The median over the rounds of the paired ratios."""
    return median(paired(numerators, denominators))


def geometric_mean(cases: Sequence[Sequence[float]]) -> Estimate:
    """The geometric mean over cases of each case's median; every case is resampled by itself."""
    if not cases:
        raise ValueError("no cases")

    def mean(medians: Sequence[float]) -> float:
        return math.exp(sum(math.log(value) for value in medians) / len(medians))

    return interval(
        mean([statistics.median(case) for case in cases]),
        lambda source: mean([statistics.median(source.choices(case, k=len(case))) for case in cases]),
    )
