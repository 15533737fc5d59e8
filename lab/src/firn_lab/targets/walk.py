"""Reads all rows of a database as statements with short ranges do, index by index.

A memory pool takes the blocks of short ranges and keeps them, those of scans for ten minutes only.
It takes all of them at the second read, many at the first. So two walks bring a pool to the state
that it has after long work.
"""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass

from firn_lab.targets.mysql import MySqlTarget

# Rows of a range: at most two blocks, after which a scan reads ahead.
RANGE_ROWS = 40
# Of an index that has no rows: its entries are small.
RANGE_ENTRIES = 400
# Rows of a range of values out of line.
RANGE_VALUES = 8
WALKS = 2
THREADS = 4


@dataclass(frozen=True)
class Index:
    """The index of a table over one column of integers; `values` are columns of large values."""

    table: str
    name: str
    column: str
    values: tuple[str, ...] = ()

    @property
    def range_rows(self) -> int:
        if self.values:
            return RANGE_VALUES
        return RANGE_ROWS if self.name == "PRIMARY" else RANGE_ENTRIES

    @property
    def statement(self) -> str:
        """Reads the range after a key, in order; the first column is the key."""
        selected = ", ".join([self.column, *(f"CRC32({each})" for each in self.values)])
        return (
            f"SELECT {selected} FROM {self.table} FORCE INDEX ({self.name}) "
            f"WHERE {self.column} > %s ORDER BY {self.column} LIMIT {self.range_rows}"
        )


def indexes(target: MySqlTarget, database: str) -> Iterator[Index]:
    """The indexes of all tables over one column of integers."""
    values: dict[str, list[str]] = {}
    for table, column in target.query(
        "SELECT table_name, column_name FROM information_schema.columns "
        "WHERE table_schema = %s AND data_type LIKE '%%blob'",
        (database,),
        "",
    ):
        values.setdefault(table, []).append(column)
    for table, name, column in target.query(
        "SELECT s.table_name, s.index_name, MIN(s.column_name) "
        "FROM information_schema.statistics s JOIN information_schema.columns c "
        "USING (table_schema, table_name, column_name) WHERE table_schema = %s "
        "GROUP BY s.table_name, s.index_name "
        "HAVING COUNT(*) = 1 AND MIN(c.data_type) IN ('int', 'bigint')",
        (database,),
        "",
    ):
        large = values.get(table, []) if name == "PRIMARY" else []
        yield Index(table, name, column, tuple(large))


def walk(target: MySqlTarget, database: str) -> int:
    """Reads all rows by each of these indexes, twice; returns the number of rows that it has read.

    The second walk begins when the first one is over, so that no cache has a block from then.
    """
    everything = list(indexes(target, database))
    with ThreadPoolExecutor(THREADS) as threads:
        return sum(
            sum(threads.map(lambda index: _walk(target, database, index), everything))
            for _ in range(WALKS)
        )


def _walk(target: MySqlTarget, database: str, index: Index) -> int:
    count = 0
    with target.connect(database) as connection, connection.cursor() as cursor:
        # Keys of the workloads are not negative.
        last = -1
        while cursor.execute(index.statement, (last,)):
            rows = cursor.fetchall()
            last, count = rows[-1][0], count + len(rows)
    return count
