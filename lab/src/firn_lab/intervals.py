"""Estimates with confidence intervals: ratios of rounds that ran close together, bootstrapped.

A block is a set of short rounds of one case, one round on each target, in random order. A slow
drift of the machine affects all rounds of a block alike and cancels in the block's ratios. A short
disturbance affects one round and produces one odd ratio among many.

`ratio` estimates the ratio of a typical block: the exponential of the mean of the middle half of
the logarithms of all blocks' ratios. Simulated machines with drifts and bursts of other work
(tests/simulated_machine.py) led to this choice: its interval is as narrow as the mean's on a calm
machine, and half as wide under bursts. The price is that it ignores a stall that occurs in one
block of ten, even when the target itself causes the stall. `whole` ignores nothing: it divides the
total rate on one target by the total rate on the other.
"""

from __future__ import annotations

import functools
import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TypeVar

import numpy as np
from numpy.typing import NDArray

# An estimate from fewer blocks than this is never conclusive, however narrow its interval is.
BLOCKS_MIN = 12
# An estimate from fewer values than this has no interval.
INTERVAL_MIN = 3
RESAMPLES = 2000
# Confidence level in percent: the interval leaves out 2.5 % below and 2.5 % above.
LEVEL = 95.0
# The ratio of a typical block is a trimmed mean: it leaves out this fraction of the blocks at
# either end.
TRIM = 0.25

Numbers = NDArray[np.float64]
T = TypeVar("T")


@dataclass(frozen=True)
class Interval:
    """An estimate from `count` blocks. Without an interval, `low` and `high` equal `value`."""

    value: float
    low: float
    high: float
    count: int

    @property
    def half_width(self) -> float:
        """Half the interval's width as a fraction of the value; infinite without an interval."""
        if self.count < INTERVAL_MIN or self.value <= 0:
            return float("inf")
        return (self.high - self.low) / 2 / self.value

    def holds(self, value: float) -> bool:
        return self.low <= value <= self.high

    def concluded(self, within: float) -> bool:
        """Whether the value is known to plus or minus `within`, a fraction of the value."""
        return self.count >= BLOCKS_MIN and self.half_width <= within


def single(value: float) -> Interval:
    """Wraps a figure that was measured only once."""
    return Interval(value, value, value, 1)


def typical(values: Sequence[float]) -> Interval | None:
    """Median of a figure, with its interval. None without values."""
    if not values:
        return None
    middle = statistics.median(values)
    if len(values) < INTERVAL_MIN:
        return Interval(middle, middle, middle, len(values))
    drawn = np.median(np.asarray(values)[_draws(len(values))], axis=1)
    low, high = _ends(drawn)
    return Interval(middle, low, high, len(values))


def mean(values: Sequence[float], weights: Sequence[float]) -> Interval | None:
    """Weighted mean of a figure, with its interval. None without values.

    A figure that comes in lumps needs weights: bytes per transaction are all bytes divided by all
    transactions, not the mean over rounds.
    """
    if not values:
        return None
    if sum(weights) == 0:
        weights = [1.0] * len(values)
    parts, shares = np.asarray(values) * np.asarray(weights), np.asarray(weights, dtype=float)
    middle = float(parts.sum() / shares.sum())
    if len(values) < INTERVAL_MIN:
        return Interval(middle, middle, middle, len(values))
    draws = _draws(len(values))
    below = shares[draws].sum(axis=1)
    drawn = parts[draws].sum(axis=1)[below > 0] / below[below > 0]
    low, high = _ends(drawn)
    return Interval(middle, low, high, len(values))


def ratio(pairs: Sequence[tuple[float, float]]) -> Interval | None:
    """Ratio of a typical block, first by second. None without a pair of positive numbers."""
    logarithms = np.log([one / other for one, other in pairs if one > 0 and other > 0])
    count = len(logarithms)
    if count == 0:
        return None
    middle = float(np.exp(_middle(logarithms)))
    if count < INTERVAL_MIN:
        return Interval(middle, middle, middle, count)
    low, high = np.exp(_ends(_middle(logarithms[_draws(count)])))
    # A bootstrap variance is (n - 1) / n of the variance over new samples; widen accordingly.
    stretch = (count / (count - 1)) ** 0.5
    return Interval(
        middle,
        float(middle * (low / middle) ** stretch),
        float(middle * (high / middle) ** stretch),
        count,
    )


# A numerator and denominator of one round: transactions and seconds, or bytes and transactions.
Share = tuple[float, float]


def whole(pairs: Sequence[tuple[Share, Share]]) -> Interval | None:
    """Total rate of the first target divided by that of the second. The bootstrap draws blocks."""
    count = len(pairs)
    if count == 0:
        return None
    sums = np.asarray([(*one, *other) for one, other in pairs], dtype=float)
    middle = float(_quotients(sums.sum(axis=0)))
    if not np.isfinite(middle):
        return None
    if count < INTERVAL_MIN:
        return Interval(middle, middle, middle, count)
    drawn = _quotients(sums[_draws(count)].sum(axis=1))
    drawn = drawn[np.isfinite(drawn)]
    if len(drawn) == 0:
        return None
    low, high = _ends(drawn)
    return Interval(middle, low, high, count)


def _quotients(sums: Numbers) -> Numbers:
    with np.errstate(divide="ignore", invalid="ignore"):
        one, other = sums[..., 0] / sums[..., 1], sums[..., 2] / sums[..., 3]
        return np.asarray(one / other)


def paired(one: Mapping[int, T], other: Mapping[int, T]) -> list[tuple[T, T]]:
    """Pairs of values of the blocks that both mappings contain, in order of block number."""
    return [(one[number], other[number]) for number in sorted(one.keys() & other.keys())]


def _middle(values: Numbers) -> Numbers:
    """Mean of the middle half along the last axis; see `TRIM`."""
    count = values.shape[-1]
    out = int(count * TRIM)
    if out == 0:
        return np.asarray(values.mean(axis=-1))
    ordered = np.sort(values, axis=-1)
    return np.asarray(ordered[..., out : count - out].mean(axis=-1))


def _ends(drawn: Numbers) -> tuple[float, float]:
    out = (100 - LEVEL) / 2
    low, high = np.percentile(drawn, (out, 100 - out))
    return float(low), float(high)


@functools.lru_cache(maxsize=8)
def _draws(count: int) -> NDArray[np.int32]:
    """Bootstrap draws. The seed is the count, so that the same data give the same interval."""
    return np.random.default_rng(count).integers(0, count, (RESAMPLES, count), dtype=np.int32)
