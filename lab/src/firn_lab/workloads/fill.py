"""Fills tables with rows made by the lab: a process a share, as many at once as there are cores.

A share is a run of rows of one table with its own seed, so that the data is the same whatever the
number of processes and whatever the target. MySQL gets multi-row INSERTs, PostgreSQL COPY.
"""

from __future__ import annotations

import multiprocessing
import os
import signal
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from datetime import date, datetime
from decimal import Decimal
from functools import partial
from multiprocessing.connection import Connection, wait
from typing import Any

from pymysql.converters import escape_string

from firn_lab.errors import LabError
from firn_lab.processes import GUARD
from firn_lab.targets.base import Target
from firn_lab.workloads.base import Sink
from firn_lab.workloads.driver import as_lab_error

# Of one INSERT, which is a transaction of its own.
STATEMENT_CHARACTERS_MAX = 512 << 10

Row = Sequence[Any]


@dataclass(frozen=True)
class Share:
    """Rows of one table; `columns` where the table has others too."""

    table: str
    rows: Callable[[], Iterable[Row]]
    columns: tuple[str, ...] = ()


def shares(
    table: str, count: int, rows: Callable[[range], Iterable[Row]], size: int
) -> list[Share]:
    """A table of rows 1 to `count` in shares of `size`."""
    return [
        Share(table, partial(rows, range(first, min(first + size, count + 1))))
        for first in range(1, count + 1, size)
    ]


def fill(
    target: Target, everything: Sequence[Share], sink: Sink, processes_max: int | None = None
) -> None:
    """Raises what the first share that failed met."""
    processes_max = processes_max or os.cpu_count() or 1
    context = multiprocessing.get_context("fork")
    waiting = list(everything)
    working: dict[Connection, Any] = {}
    done = 0
    try:
        while waiting or working:
            while waiting and len(working) < processes_max:
                here, there = context.Pipe()
                process = context.Process(
                    target=_work, args=(there, here, target, waiting.pop(0)), daemon=True
                )
                process.start()
                assert process.pid is not None
                GUARD.watch(process.pid)
                there.close()
                working[here] = process
            # Now and then the sink looks whether the disk is full.
            for pipe in wait(list(working), 1.0):
                assert isinstance(pipe, Connection)
                _receive(pipe)
                _end(pipe, working.pop(pipe))
                done += 1
            sink.progress(done / len(everything))
    finally:
        for pipe, process in working.items():
            _end(pipe, process)


def _receive(pipe: Connection) -> None:
    try:
        message = pipe.recv()
    except EOFError:
        raise LabError("a process that loads data was killed") from None
    if isinstance(message, LabError):
        raise message


def _end(pipe: Connection, process: Any) -> None:
    process.kill()
    process.join()
    GUARD.forget(process.pid)
    pipe.close()


def _work(pipe: Connection, parent: Connection, target: Target, share: Share) -> None:
    """A share's process. Ctrl-C is the parent's affair."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    parent.close()
    try:
        insert(target, share)
        pipe.send("done")
    except BrokenPipeError:
        pass  # The parent has given up.
    except Exception as error:
        pipe.send(as_lab_error(error))
    finally:
        os._exit(0)


def insert(target: Target, share: Share) -> None:
    """All rows of a share, in this process."""
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
    """Multi-row INSERTs of bounded length."""
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
    """As MySQL reads it."""
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
