"""Reads runs of neighbouring rows, spread over an index.

The server scans a small table once from end to end and sends only the runs; the row count is exact
then. In a large table every run is a range read. Runs of the primary index start at points between
the smallest and the largest value of its first column; runs of a secondary index start at rows
that the primary runs returned.
"""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from firn_lab.estimate.read_budget import Limits, ReadBudget, run_count, run_rows
from firn_lab.estimate.sample_starts import after, between, compared
from firn_lab.estimate.schema import Column, Index, Query, Table, quoted
from firn_lab.estimate.values import expression, is_integer, is_text

# Relative error of InnoDB's row count, used if rows are neither counted nor derived from keys.
STATISTICS_ERROR = 0.3
# Relative variance that is assumed for the density of keys in the gap between two runs of rows. So
# the standard deviation is half of the density of the run before the gap.
DENSITY_VARIANCE = 0.25


@dataclass(frozen=True)
class Sample:
    """Runs of neighbouring rows, each row with its number in the index.

    `whole`: the runs contain the entire index. `rows_error`: relative error of `rows`, the number
    of rows of the index.
    """

    runs: list[list[tuple[int, tuple[Any, ...]]]]
    rows: float
    rows_error: float
    whole: bool


def columns_of(table: Table, index: Index | None) -> list[Column]:
    """Columns to read for an index.

    The primary index needs whole rows, another index its own columns and those of the primary key.
    """
    if index is None or index.primary:
        return [column for column in table.columns if not column.virtual]
    primary = table.primary.parts if table.primary else ()
    return [column for column, _ in (*index.parts, *primary)]


class Sampler:
    """Samples the indexes of one table. `reads` is the table's read budget, without a `problem`."""

    def __init__(self, query: Query, table: Table, limits: Limits, reads: ReadBudget) -> None:
        self._query = query
        self._table = table
        self._limits = limits
        self._reads = reads
        self._random = random.Random(limits.seed)
        self._starts: list[tuple[Any, ...]] = []
        self._rows: tuple[float, float] | None = None

    def sample(self, index: Index | None) -> Sample:
        """Samples an index; None stands for the rows of a table without a primary key."""
        if self._reads.whole:
            return self._by_scan(index)
        assert index is not None, "ranges of a table without a primary key"
        return self._by_ranges(index)

    def _source(self, index: Index | None) -> tuple[str, str, str]:
        """The columns to select, the table with an index hint, and the ORDER BY clause."""
        columns = columns_of(self._table, index)
        place = f"{quoted(self._table.database)}.{quoted(self._table.name)}"
        if index is None:
            return ", ".join(map(expression, columns)), place, ""
        primary = self._table.primary.parts if self._table.primary else ()
        parts = index.parts if index.primary else (*index.parts, *primary)
        order = ", ".join(dict.fromkeys(quoted(column.name) for column, _ in parts))
        source = f"{place} FORCE INDEX ({quoted(index.name)})"
        if any(prefix is not None for _, prefix in parts):
            # Leave out ORDER BY: the server cannot use a prefix index to order rows, so it would
            # sort them. A range read returns rows in the order of the index anyway.
            return ", ".join(map(expression, columns)), source, ""
        return ", ".join(map(expression, columns)), source, f" ORDER BY {order}"

    def _all(self, index: Index | None) -> tuple[str, list[Any]]:
        """A condition, with arguments, that every row meets and that makes the server walk along
        the index."""
        if index is None or index.primary or all(prefix is None for _, prefix in index.parts):
            return "", []
        column = index.parts[0][0]
        name = quoted(column.name)
        place = f"{quoted(self._table.database)}.{quoted(self._table.name)}"
        least = "CAST(MIN({}) AS BINARY)" if is_text(column) else "MIN({})"
        ((low,),) = self._query(f"SELECT {least.format(name)} FROM {place}", ())
        if low is None:
            return "", []
        return f" AND ({name} >= {compared(column)} OR {name} IS NULL)", [low]

    def _run_count(self, index: Index | None) -> int:
        return run_count(self._table, index, self._reads.sample_bytes)

    def _by_scan(self, index: Index | None) -> Sample:
        run = run_rows(self._table, index)
        estimate = max(1, self._table.rows)
        # The scan returns runs of neighbouring rows. `step` is the number of rows from the start of
        # one run to the start of the next. It is computed from InnoDB's row count, which may be off
        # by half; then the number of runs is off by the same factor.
        step = max(run, estimate // self._run_count(index))
        columns, source, order = self._source(index)
        every, values = self._all(index)
        self._query("SELECT @firn_n := -1", ())
        # Start at a random offset in each stretch of `step` rows: the first rows of a table are
        # often untypical.
        shift = self._random.randrange(step - run + 1)
        rows = self._query(
            f"SELECT @firn_n, {columns} FROM {source} "
            f"WHERE ((@firn_n := @firn_n + 1) + {step - shift}) %% {step} < {run}{every}{order}",
            values,
        )
        count = int(self._query("SELECT @firn_n", ())[0][0]) + 1
        self._rows = (float(count), 0.0)
        runs: list[list[tuple[int, tuple[Any, ...]]]] = []
        last = None
        for number, *values in rows:
            place = (int(number) + step - shift) // step
            if place != last and not (step == run and runs):
                runs.append([])
            last = place
            runs[-1].append((int(number), tuple(values)))
        return Sample(runs, float(count), 0.0, whole=len(rows) == count)

    def _by_ranges(self, index: Index) -> Sample:
        find = self._primary_starts if index.primary else self._secondary_starts
        conditions = find(index, self._run_count(index))
        columns, source, order = self._source(index)
        limit = run_rows(self._table, index)
        runs, firsts, number = [], set(), 0
        for condition, values in conditions:
            rows = self._query(
                f"SELECT {columns} FROM {source} WHERE {condition}{order} LIMIT {limit}", values
            )
            # Two start conditions within the same gap between keys return the same rows; keep one
            # such run.
            if rows and rows[0] not in firsts:
                firsts.add(rows[0])
                runs.append([(number + n, tuple(row)) for n, row in enumerate(rows)])
            number += max(1, self._table.rows // len(conditions))
        if index.primary:
            self._rows = self._count(index, runs)
            rows_read = [row for run in runs for _, row in run]
            self._starts = self._random.sample(rows_read, len(rows_read))
        assert self._rows is not None, "the primary index is sampled first"
        count, error = self._rows
        return Sample(runs, count, error, whole=False)

    def _primary_starts(self, index: Index, count: int) -> list[tuple[str, list[Any]]]:
        """Conditions at which sampled ranges of the primary index start.

        Each of `count` stretches of the keys has one start, at a random value.
        """
        column = index.parts[0][0]
        name, compare = quoted(column.name), compared(column)
        _, source, order = self._source(index)
        ends = self._query(
            f"SELECT MIN({expression(column)}), MAX({expression(column)}) FROM {source}", ()
        )

        def key_at(value: Any) -> Any:
            rows = self._query(
                f"SELECT {expression(column)} FROM {source} WHERE {name} >= {compare}{order} "
                "LIMIT 1",
                (value,),
            )
            return rows[0][0] if rows else None

        low, high = ends[0]
        if low is None:
            return []
        places = [(n + self._random.random()) / count for n in range(count)]
        values = between(column, low, high, places, key_at)
        assert values is not None, "has_places was not asked"
        return [(f"{name} >= {compare}", [value]) for value in values]

    def _secondary_starts(self, index: Index, count: int) -> list[tuple[str, list[Any]]]:
        places = {column.name: n for n, column in enumerate(columns_of(self._table, None))}
        primary = self._table.primary.parts if self._table.primary else ()
        parts = {column.name: (column, prefix) for column, prefix in (*index.parts, *primary)}
        return [
            after([(column, prefix, row[places[name]]) for name, (column, prefix) in parts.items()])
            for row in self._starts[:count]
        ]

    def _count(
        self, index: Index, runs: Sequence[Sequence[tuple[int, tuple[Any, ...]]]]
    ) -> tuple[float, float]:
        """The table's row count and its relative error.

        The count follows from the density of the keys if the primary key is one integer, else from
        InnoDB's statistics. `--count` counts the rows instead.
        """
        if self._limits.count:
            place = f"{quoted(self._table.database)}.{quoted(self._table.name)}"
            return float(self._query(f"SELECT COUNT(*) FROM {place}", ())[0][0]), 0.0
        column = index.parts[0][0]
        if len(index.parts) > 1 or not is_integer(column) or len(runs) < 2:
            return float(self._table.rows), STATISTICS_ERROR
        _, source, _ = self._source(index)
        name = quoted(column.name)
        ((low, high),) = self._query(f"SELECT MIN({name}), MAX({name}) FROM {source}", ())
        at = columns_of(self._table, index).index(column)
        keys = [[int(row[at]) for _, row in run] for run in runs]
        # A run is a range of neighbouring rows that was read. Nobody has read the rows between two
        # runs: assume that their keys are as dense as those of the run before them.
        rows, errors = 0.0, 0.0
        firsts = [int(low), *(found[0] for found in keys[1:]), int(high) + 1]
        for found, first, end in zip(keys, firsts[:-1], firsts[1:], strict=True):
            # A run of n rows has n keys and n - 1 distances between neighbouring keys. So its
            # density is n - 1 keys per distance from the first key to the last one. With n instead
            # of n - 1, the density would be too high, most of all for a few keys that lie far
            # apart.
            gaps = found[-1] - found[0]
            density = (len(found) - 1) / gaps if gaps else 1 / max(1, end - first)
            inside = [key for key in found if key < end]
            if len(inside) < len(found):
                # This run of rows overlaps the next run. So the sample has every key from the first
                # key of this run to the first key of the next one, and their number is exact.
                rows += len(inside) + density * (found[0] - first)
                continue
            rows += density * (end - first)
            errors += (density * (end - found[-1] - 1)) ** 2 * DENSITY_VARIANCE
        return rows, errors**0.5 / max(1.0, rows)
