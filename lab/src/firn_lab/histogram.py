"""Latency histograms with buckets 2 % apart, which merge across processes, and their summary."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass

# Buckets grow by this factor; the value of a bucket is its upper edge, as in sysbench.
GROWTH = 1.02
_LOG_GROWTH = math.log(GROWTH)


@dataclass(frozen=True)
class Latency:
    """Summary of a histogram, in milliseconds."""

    average_ms: float
    p50_ms: float
    p95_ms: float
    p99_ms: float
    max_ms: float
    # None if it was not computed. The store has it for rounds only, not for their parts.
    p999_ms: float | None = None


class Histogram:
    """Number of latencies per bucket; a bucket `n` ends at `GROWTH ** n` microseconds."""

    def __init__(self) -> None:
        self.counts: dict[int, int] = {}
        self.total_us = 0.0
        self.max_us = 0.0

    def add(self, microseconds: float) -> None:
        """Counts one latency."""
        bucket = math.ceil(math.log(max(microseconds, 1.0)) / _LOG_GROWTH)
        self.counts[bucket] = self.counts.get(bucket, 0) + 1
        self.total_us += microseconds
        self.max_us = max(self.max_us, microseconds)

    def merge(self, other: Histogram) -> None:
        """Adds the counts of another histogram."""
        for bucket, count in other.counts.items():
            self.counts[bucket] = self.counts.get(bucket, 0) + count
        self.total_us += other.total_us
        self.max_us = max(self.max_us, other.max_us)

    @staticmethod
    def edge_us(bucket: int) -> float:
        """Upper edge of a bucket, in microseconds."""
        edge: float = GROWTH**bucket
        return edge

    @property
    def count(self) -> int:
        return sum(self.counts.values())

    def percentile_us(self, percent: float) -> float:
        """Smallest bucket edge that at least `percent` of the latencies do not exceed; 0 if empty.

        The result is at most the largest latency.
        """
        edges = {self.edge_us(bucket): count for bucket, count in self.counts.items()}
        return min(percentile(edges, percent), self.max_us)

    def summary(self) -> Latency | None:
        """Average, percentiles and maximum; None if the histogram is empty."""
        count = self.count
        if count == 0:
            return None
        p50, p95, p99, p999 = (self.percentile_us(percent) / 1e3 for percent in (50, 95, 99, 99.9))
        return Latency(self.total_us / count / 1e3, p50, p95, p99, self.max_us / 1e3, p999)


def percentile(counts: Mapping[float, int], percent: float) -> float:
    """The smallest value that at least `percent` of the values do not exceed; 0 if empty."""
    wanted = sum(counts.values()) * percent / 100
    seen = 0
    for value in sorted(counts):
        seen += counts[value]
        if seen >= wanted:
            return value
    return 0.0
