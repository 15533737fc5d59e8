"""Reads of a FIRN server from files and from its memory pool, and what the nodes take for them.

The counters are those of FIRN_IO and FIRN_POOL, read before and after a round. They are taken where
the place of a read matters: of a server with a pool, or with its tables on an emulated disk.
"""

from __future__ import annotations

from collections.abc import Mapping

import pymysql

from firn_lab.errors import TargetError
from firn_lab.measures.measure import ROUND_MEASURES, Probe, RoundMeasure
from firn_lab.processes import processor_seconds
from firn_lab.targets.engine import EngineTarget
from firn_lab.targets.pool import PoolTarget
from firn_lab.targets.target import Target
from firn_lab.workloads.workload import FigureKind, Outcome

# Classes of FIRN_IO that statements wait for.
CLASSES = ("index", "point", "range", "scan", "blob")
# Counters of FIRN_POOL by name of the sum over all nodes.
POOL = {
    "gets": "gets",
    "hits": "hits",
    "late": "late + broken",
    "evictions": "evictions",
    "breaker_opened": "breaker_opened",
    "dropped_puts": "dropped_puts",
}
Counters = Mapping[str, int]


def growth(before: Counters, now: Counters) -> dict[str, int]:
    """What counters have counted meanwhile. One that is smaller began anew, with the server."""
    return {
        name: value - before.get(name, 0) if value >= before.get(name, 0) else value
        for name, value in now.items()
    }


def read_figures(counted: Counters, transactions: int, node_seconds: float) -> dict[str, float]:
    """Figures of a round: `file` and `pool` are its reads, the other counters those of POOL."""
    figures: dict[str, float] = {}
    reads = counted["file"] + counted["pool"]
    if transactions:
        figures["file_reads_per_transaction"] = counted["file"] / transactions
    if "gets" not in counted:
        return figures
    if transactions:
        figures["pool_reads_per_transaction"] = counted["pool"] / transactions
        figures["node_cpu_us_per_transaction"] = node_seconds / transactions * 1e6
    if reads:
        figures["pool_share_percent"] = 100 * counted["pool"] / reads
    if counted["gets"]:
        figures["pool_hit_percent"] = 100 * counted["hits"] / counted["gets"]
    for name in ("late", "evictions", "breaker_opened", "dropped_puts"):
        figures[f"pool_{name}"] = float(counted[name])
    return figures


class PoolProbe(Probe):
    def __init__(self, target: EngineTarget) -> None:
        self._target = target
        self._before = self._counters()
        self._node_seconds = self._nodes()

    def _nodes(self) -> float:
        target = self._target
        return processor_seconds(target.node_pids) if isinstance(target, PoolTarget) else 0.0

    def _counters(self) -> dict[str, int]:
        try:
            return self._queried()
        except pymysql.MySQLError as error:
            raise TargetError(f"{self._target.name}: reads cannot be counted: {error}") from error

    def _queried(self) -> dict[str, int]:
        query = self._target.query
        listed = ", ".join(f"'{name}'" for name in CLASSES)
        found = {"file": 0, "pool": 0}
        found |= {
            source: int(count)
            for source, count in query(
                "SELECT source, SUM(read_count) FROM information_schema.firn_io "
                f"WHERE class IN ({listed}) GROUP BY source",
                database="",
            )
        }
        if isinstance(self._target, PoolTarget):
            sums = ", ".join(f"SUM({text})" for text in POOL.values())
            (row,) = query(f"SELECT {sums} FROM information_schema.firn_pool", database="")
            found |= {name: int(value or 0) for name, value in zip(POOL, row, strict=True)}
        return found

    def sample(self) -> Mapping[str, float]:
        """Nothing: a statement a second would disturb the server."""
        return {}

    def finish(self, outcome: Outcome) -> Mapping[str, float]:
        counted = growth(self._before, self._counters())
        return read_figures(counted, outcome.all_transactions, self._nodes() - self._node_seconds)


@ROUND_MEASURES.register("pool")
class Pool(RoundMeasure):
    figures = {
        "file_reads_per_transaction": FigureKind(""),
        "pool_reads_per_transaction": FigureKind(""),
        "node_cpu_us_per_transaction": FigureKind("µs"),
        "pool_share_percent": FigureKind("%", "higher"),
        "pool_hit_percent": FigureKind("%", "higher"),
        "pool_late": FigureKind(""),
        "pool_evictions": FigureKind(""),
        "pool_breaker_opened": FigureKind(""),
        "pool_dropped_puts": FigureKind(""),
    }

    def supports(self, target: Target) -> bool:
        return isinstance(target, EngineTarget) and target.has_slow_reads

    def begin(self, target: Target) -> PoolProbe:
        assert isinstance(target, EngineTarget)
        return PoolProbe(target)
