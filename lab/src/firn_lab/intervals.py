"""How far a figure can be believed: ratios of neighbours in time, with a bootstrap interval.

Short rounds of one case stand next to each other, one on each target, in an order drawn at random:
a block. A drift of the machine affects all rounds of a block alike and cancels in their ratios; a
disturbance of one round makes one odd ratio of many.

`ratio` is that of a typical block: the mean of the middle half of the logarithms of all blocks'
ratios. Simulated machines with drifts and bursts of other work (tests/simulated_machine.py) led to
it: its interval is as narrow as the mean's on a calm machine, and half as wide where there are
bursts. It leaves out a stall that comes in one block of ten, whoever caused it. `whole` leaves out
nothing: all that was done on one target by all that was done on the other.
"""

from __future__ import annotations

import functools
import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TypeVar

import numpy as np
from numpy.typing import NDArray

# Of fewer nothing is concluded, however near they are to each other.
BLOCKS_MIN = 12
# Of fewer there is no interval at all.
INTERVAL_MIN = 3
RESAMPLES = 2000
# Of the interval, in percent: 2.5 below and 2.5 above are left out.
LEVEL = 95.0
# A part of the blocks is left out at either end.
TRIM = 0.25

Numbers = NDArray[np.float64]
T = TypeVar("T")


@dataclass(frozen=True)
class Interval:
    """An estimate from `count` blocks. Without an interval `low` and `high` are the value."""

    value: float
    low: float
    high: float
    count: int

    @property
    def half_width(self) -> float:
        """As a part of the value; infinite where there is no interval."""
        if self.count < INTERVAL_MIN or self.value <= 0:
            return float("inf")
        return (self.high - self.low) / 2 / self.value

    def holds(self, value: float) -> bool:
        return self.low <= value <= self.high

    def concluded(self, within: float) -> bool:
        """Whether the value is known to plus or minus `within`, a part of it."""
        return self.count >= BLOCKS_MIN and self.half_width <= within


def single(value: float) -> Interval:
    """The interval of a figure that was counted or taken once."""
    return Interval(value, value, value, 1)


def typical(values: Sequence[float]) -> Interval | None:
    """Of a figure by itself: the median, and its interval. None without values."""
    if not values:
        return None
    middle = statistics.median(values)
    if len(values) < INTERVAL_MIN:
        return Interval(middle, middle, middle, len(values))
    drawn = np.median(np.asarray(values)[_draws(len(values))], axis=1)
    low, high = _ends(drawn)
    return Interval(middle, low, high, len(values))


def mean(values: Sequence[float], weights: Sequence[float]) -> Interval | None:
    """Of what comes in lumps: bytes by transaction are all bytes by all transactions."""
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
    """Of a typical block, first by second. None without a pair of numbers above zero."""
    logarithms = np.log([one / other for one, other in pairs if one > 0 and other > 0])
    count = len(logarithms)
    if count == 0:
        return None
    middle = float(np.exp(_middle(logarithms)))
    if count < INTERVAL_MIN:
        return Interval(middle, middle, middle, count)
    low, high = np.exp(_ends(_middle(logarithms[_draws(count)])))
    # Draws with replacement vary by n - 1 of n parts of what other samples would.
    stretch = (count / (count - 1)) ** 0.5
    return Interval(
        middle,
        float(middle * (low / middle) ** stretch),
        float(middle * (high / middle) ** stretch),
        count,
    )


# Of a round: what was counted, and what it is divided by (transactions and seconds; bytes and
# transactions).
Share = tuple[float, float]


def whole(pairs: Sequence[tuple[Share, Share]]) -> Interval | None:
    """All that was counted on the first by all on the second, with blocks drawn as they are."""
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
    """Values of the blocks that both have, by number of the block."""
    return [(one[number], other[number]) for number in sorted(one.keys() & other.keys())]


def _middle(values: Numbers) -> Numbers:
    """The mean of the middle half, along the last axis."""
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
    """The same for the same number: what was concluded once is concluded again."""
    return np.random.default_rng(count).integers(0, count, (RESAMPLES, count), dtype=np.int32)
