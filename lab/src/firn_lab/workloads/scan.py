"""A table with a secondary index in random order: full scans (`scan`), or ranges of the index whose
rows are fetched by primary key (`lookup`)."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator
from random import Random
from typing import Any, ClassVar

from firn_lab.errors import CheckFailed
from firn_lab.targets.target import Target
from firn_lab.workloads.driver import Done
from firn_lab.workloads.fill import Row, Share, shares
from firn_lab.workloads.sessions import SessionWorkload
from firn_lab.workloads.sql_session import (
    SqlSession,
    by_index,
    create_table,
    number_option,
    sized_option,
    text,
)
from firn_lab.workloads.workload import WORKLOADS, Params

# The column k is (id - 1) times this prime, modulo the row count. As long as the prime does not
# divide the row count, the values of k are unique, and neighbouring ids have distant values.
PRIME = 15_485_863
COLUMNS = (
    "id INT NOT NULL, k INT NOT NULL, v INT NOT NULL, c CHAR(60) NOT NULL, "
    "pad VARCHAR(100) NOT NULL, PRIMARY KEY (id)"
)
SHARE_ROWS = 20_000
# About what a row takes in InnoDB, with its entry of the index.
ROW_BYTES = 260.0


def key(number: int, rows: int) -> int:
    """The k of the row with this id, from 1 to `rows`."""
    return (number - 1) * PRIME % rows


def number_of(k: int, rows: int) -> int:
    """The id of the row with this k; the inverse of `key`."""
    return k * _inverse(rows) % rows + 1


@functools.cache
def _inverse(rows: int) -> int:
    return pow(PRIME, -1, rows)


def v(number: int) -> int:
    return number % 1000


def table(seed: int, rows: int, numbers: range) -> Iterator[Row]:
    random = Random(f"scan {seed} {numbers.start}")
    for number in numbers:
        yield number, key(number, rows), v(number), text(random, 60), text(random, 100)


class ScanSession(SqlSession):
    """Scans the whole table and compares the sum."""

    def __init__(self, connection: Any, rows: int, hint: str) -> None:
        super().__init__(connection)
        self._statement = f"SELECT COUNT(*), SUM(v) FROM scanned{hint} WHERE id > 0 AND pad <> ''"
        self._expected = (rows, sum(map(v, range(1, rows + 1))))

    def choose(self, random: Random) -> Callable[[], Done]:
        return self._scan

    def _scan(self) -> Done:
        found = tuple(self.rows(self._statement)[0])
        if found != self._expected:
            raise CheckFailed(f"a scan found {found}, not {self._expected}")
        return Done("scan", 1)


class LookupSession(SqlSession):
    """Reads ranges of k and compares their sums."""

    def __init__(self, connection: Any, rows: int, width: int, hint: str) -> None:
        super().__init__(connection)
        self._rows = rows
        self._width = min(width, rows)
        self._statement = (
            f"SELECT COUNT(*), SUM(v) FROM scanned{hint} WHERE k BETWEEN %s AND %s AND pad <> ''"
        )

    def choose(self, random: Random) -> Callable[[], Done]:
        first = random.randint(0, self._rows - self._width)
        last = first + self._width - 1
        total = sum(v(number_of(k, self._rows)) for k in range(first, last + 1))

        def transaction() -> Done:
            found = tuple(self.rows(self._statement, (first, last))[0])
            if found != (self._width, total):
                raise CheckFailed(f"k from {first} to {last}: {found}, not {self._width}, {total}")
            return Done("lookup", 1)

        return transaction


class Scanned(SessionWorkload):
    """The table that both workloads share."""

    options: ClassVar[dict[str, str]] = {"rows": "1000000", "cache": ""}
    writes = False

    def __init__(self, name: str, params: Params) -> None:
        super().__init__(name, params)
        self.rows = sized_option(self, ROW_BYTES)
        if self.rows % PRIME == 0:
            self.rows += 1  # A multiple of the prime would map all ids to k = 0.

    @property
    def about_bytes(self) -> float:
        return self.rows * ROW_BYTES

    @property
    def dataset(self) -> str:
        return f"scanned rows={self.rows} seed={self.params.seed}"

    def create(self, target: Target) -> None:
        create_table(target, "scanned", COLUMNS, "scanned_k (k)")

    def shares(self) -> list[Share]:
        rows = functools.partial(table, self.params.seed, self.rows)
        return shares("scanned", self.rows, rows, SHARE_ROWS)


@WORKLOADS.register("scan")
class Scan(Scanned):
    summary = "full scans by primary key"

    def session(self, target: Target) -> Callable[[int], ScanSession]:
        hint = by_index(target, "PRIMARY")
        return lambda number: ScanSession(target.connect(), self.rows, hint)


@WORKLOADS.register("lookup")
class Lookup(Scanned):
    summary = "ranges of a secondary index, each row by its reference back"
    options = {**Scanned.options, "range": "100"}

    def __init__(self, name: str, params: Params) -> None:
        super().__init__(name, params)
        self.width = round(number_option(self, "range"))

    def session(self, target: Target) -> Callable[[int], LookupSession]:
        hint = by_index(target, "scanned_k")
        return lambda number: LookupSession(target.connect(), self.rows, self.width, hint)
