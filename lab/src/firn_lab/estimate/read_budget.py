"""Decides how much of each table is read, so that all tables together stay within a limit.

With the default limit, a server with two tables of 200 MiB has both read whole. With a hundred
such tables, as many of the smallest as fit are read whole, and the others in ranges. With a hundred
thousand, the ranges become smaller, and finally the smallest tables are left out. This module
reads nothing itself: it takes sizes from InnoDB's statistics.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from firn_lab.estimate.sample_starts import has_places
from firn_lab.estimate.schema import Index, Table

PAGE_BYTES = 16 << 10
# Target size in bytes of a run, which here is a range of neighbouring rows of an index.
RUN_BYTES = 48 << 10
RUN_ROWS_MIN, RUN_ROWS_MAX = 4, 4000
# Largest number of neighbouring rows that are read in one range (a run) from an index over prefixes
# of columns. Such an index does not have the whole values, so the server looks up each row, which
# may lie in a page of its own.
RUN_ROWS_LOOKED_UP_MAX = 600
# Smallest number of runs that the sampler reads from an index. The error of the estimate is
# computed from the differences between the runs, which takes at least this many.
RUNS_MIN = 8


@dataclass(frozen=True)
class Limits:
    """Limits of an estimate.

    `sample_bytes`: bytes of rows to sample from each index. `scan_bytes`: a table up to this size
    may be read whole, once for each of its indexes. `total_bytes`: limit on the bytes that the
    server reads for all tables together.
    """

    sample_bytes: int = 4 << 20
    scan_bytes: int = 256 << 20
    total_bytes: int = 2 << 30
    seed: int = 920967
    # Whether to count the rows of tables larger than `scan_bytes`. To count them, the server reads
    # a whole index.
    count: bool = False


@dataclass(frozen=True)
class ReadBudget:
    """The decision for one table: read it whole, or in ranges of `sample_bytes` per index.

    `bytes`: approximate amount that the server reads. `problem`: the reason for not reading it.
    """

    whole: bool
    sample_bytes: int
    bytes: float
    problem: str = ""


def looks_up(index: Index | None) -> bool:
    """Whether a scan of this secondary index looks up a row for each entry.

    It does if the index holds only prefixes of columns.
    """
    return index is not None and not index.primary and any(p is not None for _, p in index.parts)


def row_bytes(table: Table, index: Index | None) -> float:
    """Average bytes of an entry of an index."""
    size = float(table.data_bytes)
    if index is not None and not index.primary:
        size = table.index_bytes / sum(not each.primary for each in table.indexes)
    return size / max(1, table.rows)


def run_rows(table: Table, index: Index | None) -> int:
    """Number of rows in a run of about RUN_BYTES.

    There are at least RUN_ROWS_MIN, because the density of the keys is estimated from them.
    """
    most = RUN_ROWS_LOOKED_UP_MAX if looks_up(index) else RUN_ROWS_MAX
    return int(min(most, max(RUN_ROWS_MIN, RUN_BYTES / max(row_bytes(table, index), 12.0))))


def run_count(table: Table, index: Index | None, sample_bytes: int) -> int:
    """Number of runs (ranges of neighbouring rows) that add up to about `sample_bytes`."""
    rows = run_rows(table, index)
    each = rows * (PAGE_BYTES if looks_up(index) else row_bytes(table, index))
    return int(max(RUNS_MIN, sample_bytes // max(RUN_BYTES, each)))


def whole_bytes(table: Table) -> float:
    """Bytes that the server reads to walk along every index."""
    looked_up = sum(map(looks_up, table.indexes)) * table.data_bytes
    return float(table.data_bytes + table.index_bytes + looked_up)


def range_bytes(table: Table, sample_bytes: int, count: bool = False) -> float:
    """Bytes that the server reads for the runs of every index.

    Each run also ends within a page, which is read whole.
    """
    total = 0.0
    for index in table.indexes:
        rows = run_rows(table, index)
        run = rows * row_bytes(table, index) + PAGE_BYTES
        if looks_up(index):
            run += rows * PAGE_BYTES
        total += run * run_count(table, index, sample_bytes)
    if count:
        total += min(row_bytes(table, index) for index in table.indexes) * table.rows
    return min(total, whole_bytes(table))


def allot(tables: Sequence[Table], limits: Limits) -> list[ReadBudget]:
    """Decides for each table how it is read, within the limits.

    The plan that reads only ranges of every table comes first; if the budget is too small for it,
    the samples become smaller. The rest of the budget goes to the smallest tables, which are then
    read whole and so counted exactly.
    """
    whole = {n: whole_bytes(table) for n, table in enumerate(tables) if _is_small(table, limits)}
    least = min(limits.sample_bytes, RUNS_MIN * RUN_BYTES)
    sample = limits.sample_bytes
    while True:
        found = [
            _cheapest(table, whole.get(n), sample, limits.count) for n, table in enumerate(tables)
        ]
        room = limits.total_bytes - sum(each.bytes for each in found)
        if room >= 0 or sample <= least:
            break
        sample = max(least, sample // 2)
    if room < 0:
        return _largest(tables, found, limits.total_bytes)
    for n, size in sorted(whole.items(), key=lambda item: item[1]):
        more = size - found[n].bytes
        if not found[n].whole and more <= room:
            room -= more
            found[n] = ReadBudget(True, limits.sample_bytes, size)
    return found


def _is_small(table: Table, limits: Limits) -> bool:
    return table.data_bytes + table.index_bytes <= limits.scan_bytes


def _cheapest(table: Table, whole: float | None, sample_bytes: int, count: bool) -> ReadBudget:
    """The cheaper way to read a table; `whole` is the cost of reading it whole, if allowed."""
    why = _no_ranges(table)
    ranges = None if why else range_bytes(table, sample_bytes, count)
    if whole is not None and (ranges is None or whole <= ranges):
        return ReadBudget(True, sample_bytes, whole)
    if ranges is not None:
        return ReadBudget(False, sample_bytes, ranges)
    problem = f"over the limit of --scan-mib, and {why}: its rows can be found by reading all only"
    return ReadBudget(False, 0, 0.0, problem)


def _no_ranges(table: Table) -> str:
    """The reason why the table cannot be sampled by ranges of its primary key; "" if it can."""
    if table.primary is None:
        return "without a primary key"
    column = table.primary.parts[0][0]
    return "" if has_places(column) else f"its primary key begins with {column.kind}"


def _largest(
    tables: Sequence[Table], found: Sequence[ReadBudget], total_bytes: float
) -> list[ReadBudget]:
    """Keeps the decisions for as many tables as `total_bytes` allows; the others are not read.

    The largest tables come first, because they determine the total.
    """
    kept, room = list(found), total_bytes
    for n in sorted(range(len(tables)), key=lambda n: whole_bytes(tables[n]), reverse=True):
        if found[n].bytes <= room:
            room -= found[n].bytes
        else:
            kept[n] = ReadBudget(False, 0, 0.0, "left out: no room for it in --total-mib")
    return kept
