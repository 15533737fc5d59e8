"""Reads of all tables, in parallel: a row of each, or all rows."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from multiprocessing.connection import Connection

from firn_lab.errors import LabError
from firn_lab.targets.mysql import MySqlTarget
from firn_lab.volume.rows import Table
from firn_lab.workloads.child_processes import Child

ONE_ROW = "SELECT 1, k FROM {} WHERE id = 1"
ALL_ROWS = "SELECT COUNT(*), CAST(SUM(k) AS SIGNED) FROM {} FORCE INDEX (PRIMARY)"
READ_SECONDS_MAX = 7200.0


def sums(target: MySqlTarget, tables: Sequence[Table], statement: str) -> tuple[int, int]:
    """Runs the statement on each table; returns the sums of the two columns of its row."""
    count = os.cpu_count() or 1
    readers: list[Child] = []
    totals = [0, 0]
    try:
        for number in range(count):
            readers.append(Child("a reader", _reader(target, tables[number::count], statement)))
        for each in readers:
            if not Child.ready([each], READ_SECONDS_MAX):
                raise LabError("a reader is stuck")
            one, other = each.receive()
            totals[0] += one
            totals[1] += other
    finally:
        for each in readers:
            each.end()
    return totals[0], totals[1]


def _reader(
    target: MySqlTarget, tables: Sequence[Table], statement: str
) -> Callable[[Connection], None]:
    def work(pipe: Connection) -> None:
        one, other = 0, 0
        with target.connect() as connection, connection.cursor() as cursor:
            for table in tables:
                cursor.execute(statement.format(table.name))
                ((first, second),) = cursor.fetchall()
                one, other = one + int(first), other + int(second)
        pipe.send((one, other))

    return work
