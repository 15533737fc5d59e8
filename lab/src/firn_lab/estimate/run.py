"""Estimates the tables of a server, one after another."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

from firn_lab.errors import LabError, UsageError
from firn_lab.estimate.blockers import blockers
from firn_lab.estimate.entries import RowEncoder, SecondaryEncoder
from firn_lab.estimate.predict import Prediction, predict
from firn_lab.estimate.read_budget import Limits, ReadBudget, allot
from firn_lab.estimate.sample import Sampler
from firn_lab.estimate.schema import Index, Query, Table, tables

# Index id that the estimate uses for a table's first index. A real id is of about this size; its
# value hardly matters, because all keys of an index begin with the same one.
FIRST_INDEX_ID = 256
# InnoDB's statistics count as stale if their number of rows and the number found by reading differ
# by more than this factor.
STALE_FACTOR = 1.5
# InnoDB stores at least this fraction of the raw bytes of its rows, unless it compresses them.
STORED_PART_MIN = 0.5
# The size of a file that is smaller than this says little about its rows, because InnoDB reserves
# most of the space in it.
FILE_BYTES_TOLD = 4 << 20


@dataclass(frozen=True)
class TableEstimate:
    """The estimate of one table.

    `problem`: why there is no prediction. `left_out`: indexes that the prediction does not include.
    `read_bytes`: approximate amount that the server read. `read_whole`: whether every row was
    counted. `blockers`: properties that FIRN refuses. `stale`: InnoDB's statistics are out of date,
    and no other source gives InnoDB's bytes.
    """

    name: str
    rows: float
    innodb_bytes: float
    firn: Prediction
    left_out: tuple[str, ...] = ()
    problem: str = ""
    read_bytes: float = 0.0
    read_whole: bool = False
    blockers: tuple[str, ...] = ()
    stale: bool = False

    @property
    def saved_bytes(self) -> float:
        return 0.0 if self.problem or self.stale else self.innodb_bytes - self.firn.bytes


def estimate(
    query: Query, database: str | None, names: Sequence[str], limits: Limits
) -> Iterator[TableEstimate]:
    """Estimates tables, the largest first. A table that cannot be sampled reports its problem."""
    sizes = file_bytes(query)
    found = tables(query, database, names)
    _require_all(query, database, names, found)
    # A sequence has one row, so there is nothing to estimate.
    found = [table for table in found if table.kind != "SEQUENCE"]
    stored = [sizes.get(f"{table.database}/{table.name}") for table in found]
    found = [as_large_as(table, size) for table, size in zip(found, stored, strict=True)]
    for table, size_told, reads in zip(found, stored, allot(found, limits), strict=True):
        by_statistics = table.data_bytes + table.index_bytes
        size = by_statistics if size_told is None else size_told
        why = blockers(table)
        nothing = TableEstimate(
            table.full_name, table.rows, size, Prediction(0.0, 0.0), blockers=why
        )
        if table.kind != "BASE TABLE":
            yield replace(nothing, problem=f"not estimated: {why[0]}")
            continue
        if reads.problem:
            yield replace(nothing, problem=reads.problem)
            continue
        try:
            rows, prediction = _table(query, table, limits, reads)
        except (LabError, ArithmeticError, ValueError, LookupError) as error:
            yield replace(nothing, problem=str(error), read_bytes=reads.bytes)
        else:
            yield TableEstimate(
                table.full_name, rows, size, prediction, table.left_out,
                read_bytes=reads.bytes, read_whole=reads.whole, blockers=why,
                stale=is_stale(table, size_told, rows, prediction),
            )  # fmt: skip


def as_large_as(table: Table, file_bytes: float | None) -> Table:
    """Scales the table's statistics up to the file size if they are far below it.

    The read budget depends on these numbers.
    """
    told = table.data_bytes + table.index_bytes
    if not file_bytes or file_bytes < FILE_BYTES_TOLD or file_bytes < STALE_FACTOR * told:
        return table
    factor = file_bytes / max(1, told)
    return replace(
        table,
        rows=int(table.rows * factor),
        data_bytes=int(file_bytes - table.index_bytes * factor),
        index_bytes=int(table.index_bytes * factor),
    )


def is_stale(table: Table, file_bytes: float | None, rows: float, firn: Prediction) -> bool:
    """Whether InnoDB's reported bytes are too small for the rows that were read.

    The bytes come from outdated statistics, or from a file to which pages are not flushed yet.
    """
    told = table.data_bytes + table.index_bytes if file_bytes is None else file_bytes
    if not table.packed and told < STORED_PART_MIN * firn.raw_bytes:
        return True
    known = min(rows, table.rows), max(rows, table.rows)
    # For a table of a page or two, InnoDB's row count is too rough to prove that its statistics are
    # stale.
    return file_bytes is None and known[1] > 1000 and known[1] > STALE_FACTOR * known[0]


def _require_all(
    query: Query, database: str | None, names: Sequence[str], found: Sequence[Table]
) -> None:
    """Raises UsageError if a requested database or table does not exist."""
    schemata = "SELECT 1 FROM information_schema.schemata WHERE schema_name = %s"
    if database and not query(schemata, (database,)):
        raise UsageError(f"the server has no database {database}, or does not show it")
    place = f"in {database}" if database else "on the server"
    missing = sorted(set(names) - {table.name for table in found})
    if missing:
        raise UsageError(f"there is no InnoDB table {', '.join(missing)} {place}")
    if not found:
        raise UsageError(f"there is no InnoDB table {place}")


def _table(
    query: Query, table: Table, limits: Limits, reads: ReadBudget
) -> tuple[float, Prediction]:
    sampler = Sampler(query, table, limits, reads)
    primary = sampler.sample(table.primary)
    encoder = RowEncoder(table, FIRST_INDEX_ID)
    found = [predict(primary, [[encoder.entry(row, n) for n, row in run] for run in primary.runs])]
    for number, index in enumerate(each for each in table.indexes if not each.primary):
        found.append(_secondary(sampler, table, index, FIRST_INDEX_ID + 1 + number))
    return primary.rows, Prediction(
        sum(each.bytes for each in found),
        # The estimate imitates FIRN's formats and compression. If this imitation is wrong, it is
        # wrong in the same direction for all indexes, so the errors of the indexes add up and do
        # not cancel.
        min(sum(each.error for each in found), sum(each.bytes for each in found)),
        sum(each.blob_bytes for each in found),
        # Only the raw bytes of the rows: `is_stale` compares InnoDB's size with them, and InnoDB
        # stores secondary keys in other sizes.
        found[0].raw_bytes,
    )


def _secondary(sampler: Sampler, table: Table, index: Index, index_id: int) -> Prediction:
    sample = sampler.sample(index)
    encoder = SecondaryEncoder(table, index, index_id)
    runs = [[encoder.entry(row, n) for n, row in run] for run in sample.runs]
    return predict(sample, runs)


def file_bytes(query: Query) -> dict[str, float]:
    """Bytes on disk by `database/table`; empty without the privilege to see files."""
    for view in ("innodb_sys_tablespaces", "innodb_tablespaces"):
        try:
            rows = query(f"SELECT name, allocated_size FROM information_schema.{view}", ())
        except LabError:
            continue
        # Each partition has its own file; add them up.
        sizes: dict[str, float] = {}
        for name, size in rows:
            table = str(name).replace("#P#", "#p#").partition("#p#")[0]
            sizes[table] = sizes.get(table, 0.0) + float(size)
        return sizes
    return {}


def total(found: Sequence[TableEstimate]) -> TableEstimate:
    """The sum over the tables that have a prediction.

    Its error is the larger of two values: the root of the sum of squares of the tables' errors, as
    if they were independent, and half of their plain sum.
    """
    good = [each for each in found if not (each.problem or each.stale)]
    errors = [each.firn.error for each in good]
    error = max(math.hypot(*errors), sum(errors) / 2) if errors else 0.0
    firn = Prediction(
        sum(each.firn.bytes for each in good), error, sum(each.firn.blob_bytes for each in good)
    )
    return TableEstimate(
        "total",
        sum(each.rows for each in good),
        sum(each.innodb_bytes for each in good),
        firn,
        read_bytes=sum(each.read_bytes for each in found),
    )
