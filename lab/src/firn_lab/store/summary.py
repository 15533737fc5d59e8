"""Median and spread of rounds, and whether a difference can be believed."""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from dataclasses import dataclass


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
    """Whether the wider spread exceeds the difference of the medians: draw no conclusion then."""
    return max(one.width, other.width) > abs(one.median - other.median)
