"""Median and spread of rounds, and whether a difference can be believed."""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from dataclasses import dataclass

# Of fewer the spread is not known.
ROUNDS_MIN = 3


@dataclass(frozen=True)
class Spread:
    """Of the rounds of one case on one target."""

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


def unclear(one: Spread, other: Spread) -> bool:
    """Draw no conclusion: rounds are too few, or spread wider than the medians differ."""
    return min(one.count, other.count) < ROUNDS_MIN or max(one.width, other.width) > abs(
        one.median - other.median
    )
