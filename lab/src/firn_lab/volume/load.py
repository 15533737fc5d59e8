"""Creates and fills tables in parallel, by LOAD DATA of files that are removed at once."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from multiprocessing.connection import Connection
from pathlib import Path

from firn_lab.errors import LabError
from firn_lab.targets.mysql import MySqlTarget
from firn_lab.volume.rows import Table, lines
from firn_lab.workloads.child_processes import Child

# Rows of a LOAD DATA statement, which is a transaction: 20 MB.
CHUNK_ROWS = 100_000
# A loader that is silent for so long is stuck.
SILENT_SECONDS_MAX = 1800.0


def load(target: MySqlTarget, tables: Sequence[Table], say: Callable[[float], None]) -> int:
    """Fills the tables; returns the sum of the column k of all rows.

    `say` hears the fraction that is loaded.
    """
    count = os.cpu_count() or 1
    rows, done, total = sum(table.rows for table in tables), 0, 0
    workers: list[Child] = []
    try:
        for number in range(count):
            own = tables[number::count]
            file = target.scratch / f"load-{number}.tsv"
            work = _loader(target, own, file)
            workers.append(Child("a loader", work))
        left = list(workers)
        while left:
            ready = Child.ready(left, SILENT_SECONDS_MAX)
            if not ready:
                raise LabError("the loaders are stuck")
            for each in ready:
                told: tuple[int, int] | None = each.receive()
                if told is None:
                    left.remove(each)
                    continue
                done, total = done + told[0], total + told[1]
                say(done / rows)
    finally:
        for each in workers:
            each.end()
    return total


def _loader(
    target: MySqlTarget, tables: Sequence[Table], file: Path
) -> Callable[[Connection], None]:
    def work(pipe: Connection) -> None:
        suffix = target.create_suffix()
        with target.connect() as connection, connection.cursor() as cursor:
            for table in tables:
                cursor.execute(table.create(suffix))
                for first in range(1, table.rows + 1, CHUNK_ROWS):
                    count = min(CHUNK_ROWS, table.rows + 1 - first)
                    text, k_sum = lines(table, first, count)
                    file.write_bytes(text)
                    loaded = cursor.execute(
                        f"LOAD DATA INFILE %s INTO TABLE {table.name}", (str(file),)
                    )
                    file.unlink()
                    if loaded != count:
                        raise LabError(f"{loaded} of {count} rows were loaded into {table.name}")
                    pipe.send((count, k_sum))
        pipe.send(None)

    return work
