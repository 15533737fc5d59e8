"""Percentiles are exact to the 2 % between buckets."""

from __future__ import annotations

from random import Random

import pytest

from firn_lab.histogram import GROWTH, Histogram, percentile


def test_percentiles_are_those_of_the_sorted_values() -> None:
    random = Random(1)
    values = sorted(random.lognormvariate(6, 1.5) + 1 for _ in range(20_000))
    halves = Histogram(), Histogram()
    for number, value in enumerate(values):
        halves[number % 2].add(value)
    whole = Histogram()
    for half in halves:
        whole.merge(half)
    assert whole.count == len(values)
    for percent in (50, 95, 99):
        exact = values[len(values) * percent // 100 - 1]
        assert exact * 0.999 <= whole.percentile_us(percent) <= exact * GROWTH * 1.001
    assert values[19_980 - 1] * 0.999 <= whole.percentile_us(99.9) <= values[19_980 - 1] * 1.021
    summary = whole.summary()
    assert summary is not None
    assert summary.max_ms == values[-1] / 1e3
    assert summary.p999_ms == whole.percentile_us(99.9) / 1e3
    assert summary.average_ms == pytest.approx(sum(values) / len(values) / 1e3)


def test_nothing_has_no_summary() -> None:
    assert Histogram().summary() is None
    assert percentile({}, 95) == 0


def test_the_percentile_of_counts() -> None:
    assert percentile({1.0: 94, 5.0: 5, 9.0: 1}, 95) == 5
    assert percentile({1.0: 95, 5.0: 5}, 95) == 1
    assert percentile({3.0: 1}, 1) == 3
