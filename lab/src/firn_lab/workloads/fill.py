"""Fills tables with generated rows: a process per share, as many at once as there are cores.

A share is a range of rows of one table with its own seed, so that the data does not depend on the
number of processes or the target. MySQL gets multi-row INSERTs, PostgreSQL gets COPY.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from datetime import date, datetime
from decimal import Decimal
from functools import partial
from multiprocessing.connection import Connection
from typing import Any

from pymysql.converters import escape_string

from firn_lab.targets.target import Target
from firn_lab.workloads.child_processes import Child
from firn_lab.workloads.workload import Sink

# Length limit of an INSERT, each of which is one transaction.
STATEMENT_CHARACTERS_MAX = 512 << 10

Row = Sequence[Any]


@dataclass(frozen=True)
class Share:
    """Rows of one table; `columns` names the columns if the table has others, too."""

    table: str
    rows: Callable[[], Iterable[Row]]
    columns: tuple[str, ...] = ()


def shares(
    table: str, count: int, rows: Callable[[range], Iterable[Row]], size: int
) -> list[Share]:
    """Splits the rows 1 to `count` of a table into shares of `size`."""
    return [
        Share(table, partial(rows, range(first, min(first + size, count + 1))))
        for first in range(1, count + 1, size)
    ]


def fill(
    target: Target, everything: Sequence[Share], sink: Sink, processes_max: int | None = None
) -> None:
    """Loads all shares in parallel. Raises the first error of a share."""
    processes_max = processes_max or os.cpu_count() or 1
    waiting = list(everything)
    working: list[Child] = []
    done = 0
    try:
        while waiting or working:
            while waiting and len(working) < processes_max:
                work = partial(_work, target, waiting.pop(0))
                working.append(Child("a process that loads data", work))
            # The timeout lets this loop report progress once a second.
            for child in Child.ready(working, 1.0):
                child.receive()
                working.remove(child)
                child.end()
                done += 1
            sink.progress(done / len(everything))
    finally:
        for child in working:
            child.end()


def _work(target: Target, share: Share, pipe: Connection) -> None:
    """The main function of a share's process."""
    insert(target, share)
    pipe.send("done")


def insert(target: Target, share: Share) -> None:
    """Loads a share in this process."""
    names = f" ({', '.join(share.columns)})" if share.columns else ""
    with target.connect() as connection, connection.cursor() as cursor:
        if target.dialect == "mysql":
            for statement in statements(f"INSERT INTO {share.table}{names} VALUES ", share.rows()):
                cursor.execute(statement)
        else:
            with cursor.copy(f"COPY {share.table}{names} FROM STDIN") as copy:
                for row in share.rows():
                    copy.write_row(row)


def statements(head: str, rows: Iterable[Row]) -> Iterator[str]:
    """Builds multi-row INSERTs of bounded length."""
    values: list[str] = []
    length = 0
    for row in rows:
        value = f"({','.join(map(literal, row))})"
        values.append(value)
        length += len(value)
        if length >= STATEMENT_CHARACTERS_MAX:
            yield head + ",".join(values)
            values, length = [], 0
    if values:
        yield head + ",".join(values)


def literal(value: Any) -> str:
    """A value as a MySQL literal."""
    kind = type(value)
    if kind is int or kind is float or kind is Decimal:
        return str(value)
    if kind is str:
        return f"'{escape_string(value)}'"
    if value is None:
        return "NULL"
    if isinstance(value, bytes):
        return f"x'{value.hex()}'"
    if isinstance(value, datetime | date):
        return f"'{value}'"
    raise TypeError(f"no literal for {kind.__name__}")
