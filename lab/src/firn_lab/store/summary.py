"""Median and spread of rounds, and whether a difference can be believed."""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from dataclasses import dataclass, replace

# Of fewer the spread is not known.
ROUNDS_MIN = 3


@dataclass(frozen=True)
class Spread:
    """Of the rounds of one case on one target. What stands for them all is the median, or a mean
    where the work comes in lumps."""

    median: float
    low: float
    high: float
    count: int

    @property
    def width(self) -> float:
        return self.high - self.low


def spread(values: Sequence[float]) -> Spread | None:
    """None without values."""
    if not values:
        return None
    return Spread(statistics.median(values), min(values), max(values), len(values))


def mean(values: Sequence[float], weights: Sequence[float]) -> Spread | None:
    """With the weighted mean: of bytes by transaction, all bytes by all transactions."""
    found = spread(values)
    if found is None or sum(weights) == 0:
        return found
    total = sum(value * weight for value, weight in zip(values, weights, strict=True))
    return replace(found, median=total / sum(weights))


def unclear(one: Spread, other: Spread) -> bool:
    """Draw no conclusion: rounds are too few, or spread wider than the medians differ."""
    return min(one.count, other.count) < ROUNDS_MIN or max(one.width, other.width) > abs(
        one.median - other.median
    )
