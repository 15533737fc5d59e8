"""Reads from files and from a memory pool, and the processor time of servers and nodes, as text."""

from __future__ import annotations

from firn_lab.report.conclusions import CPU
from firn_lab.report.report_data import Report, Result
from firn_lab.report.units import number_text

HEAD = (
    "case", "engine", "reads of files", "blocks of the pool", "share of the pool", "hits",
    "server, µs/query", "nodes, µs/query", "late", "evicted", "node lost",
)  # fmt: skip
NOTE = (
    "Reads and blocks are those that a transaction waits for. The share of the pool is of both "
    "together; hits are of the blocks that nodes were asked for. Late answers, evictions and "
    "losses of a node are sums over all rounds."
)
# Any of these shows that a result has counters of reads.
_SHOWS = ("file_reads_per_transaction", "pool_share_percent")


def pool_rows(report: Report) -> list[list[str]]:
    """The rows of the table, by case; empty if no read was counted."""
    return [_row(each) for each in report.results if any(name in each.figures for name in _SHOWS)]


def _row(result: Result) -> list[str]:
    figures = result.figures
    queries = result.total("queries") / max(1.0, result.total("transactions"))

    def plain(name: str, divisor: float = 1.0) -> str:
        value = figures.get(name)
        return "–" if value is None else number_text(value.value / divisor)

    def percent(name: str) -> str:
        return f"{plain(name)} %" if name in figures else "–"

    def counted(name: str) -> str:
        return f"{result.total(name):,.0f}" if name in figures else "–"

    return [
        result.case.label,
        result.target.name,
        plain("file_reads_per_transaction"),
        plain("pool_reads_per_transaction"),
        percent("pool_share_percent"),
        percent("pool_hit_percent"),
        plain(CPU, queries or 1.0),
        plain("node_cpu_us_per_transaction", queries or 1.0),
        counted("pool_late"),
        counted("pool_evictions"),
        counted("pool_breaker_opened"),
    ]
