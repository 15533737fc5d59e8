"""Temporary tables: create one, fill it from a stored table, drop it."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from random import Random
from typing import Any

from firn_lab.errors import CheckFailed
from firn_lab.targets.target import Target
from firn_lab.workloads.driver import Done
from firn_lab.workloads.fill import Row, Share, shares
from firn_lab.workloads.sessions import SessionWorkload
from firn_lab.workloads.sql_session import SqlSession, create_table, scaled_option, text
from firn_lab.workloads.workload import WORKLOADS, Params

COLUMNS = "id INT NOT NULL, v INT NOT NULL, s VARCHAR(40) NOT NULL, PRIMARY KEY (id)"


class TemporarySession(SqlSession):
    """Each transaction makes a temporary table of `rows` rows."""

    def __init__(self, connection: Any, rows: int, keys: bool, suffix: str) -> None:
        super().__init__(connection)
        self._rows = rows
        self._create = f"CREATE TEMPORARY TABLE made ({COLUMNS}){suffix}"
        self._indexes = ("v", "s") if keys else ()

    def choose(self, random: Random) -> Callable[[], Done]:
        return self._make

    def _make(self) -> Done:
        self.rows(self._create)
        for column in self._indexes:
            self.rows(f"CREATE INDEX made_{column} ON made ({column})")
        filled = self.changed("INSERT INTO made SELECT id, v, s FROM source")
        self.rows("DROP TABLE made")
        if filled != self._rows:
            raise CheckFailed(f"the temporary table got {filled} rows, not {self._rows}")
        return Done("make", 1)


@WORKLOADS.register("temporary")
class Temporary(SessionWorkload):
    summary = "temporary tables: created, filled from a stored table, dropped"
    # keys: 1 for two secondary indexes.
    options = {"rows": "1000", "keys": "0"}
    warm_reads = {"source": "SUM(v)"}

    def __init__(self, name: str, params: Params) -> None:
        super().__init__(name, params)
        self.rows = scaled_option(self, "rows")

    @property
    def about_bytes(self) -> float:
        return self.rows * 80.0

    @property
    def dataset(self) -> str:
        return f"temporary rows={self.rows} seed={self.params.seed}"

    def create(self, target: Target) -> None:
        create_table(target, "source", COLUMNS)

    def shares(self) -> list[Share]:
        return shares("source", self.rows, self._values, 20_000)

    def _values(self, numbers: range) -> Iterator[Row]:
        random = Random(f"temporary {self.params.seed} {numbers.start}")
        return ((number, number % 100, text(random, 32)) for number in numbers)

    def session(self, target: Target) -> Callable[[int], TemporarySession]:
        rows, suffix, keys = self.rows, target.create_suffix(), self.option("keys") == "1"
        return lambda number: TemporarySession(target.connect(), rows, keys, suffix)

    def check(self, target: Target) -> list[str]:
        """Checks the stored table, and that it is the only one."""
        count = target.query("SELECT COUNT(*) FROM source")[0][0]
        return [] if count == self.rows else [f"{count} rows, not {self.rows}"]
