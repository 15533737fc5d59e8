"""The insert benchmark: many rows per transaction, in order of the primary key, at random
positions of three secondary indexes."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterator
from datetime import datetime, timedelta
from random import Random
from typing import Any

from firn_lab.clock import Clock
from firn_lab.targets.target import Target
from firn_lab.workloads.driver import Done
from firn_lab.workloads.fill import Row, Share, shares
from firn_lab.workloads.sessions import SessionWorkload
from firn_lab.workloads.sql_session import (
    SqlSession,
    by_index,
    create_table,
    date_type,
    number_option,
    scaled_option,
    text,
)
from firn_lab.workloads.workload import WORKLOADS, FigureKind, Outcome, Params, Sink

NAMES = ("at", "register_id", "customer_id", "product_id", "price", "data")
INDEXES = {
    "purchases_market": "(price, customer_id)",
    "purchases_register": "(register_id, price, customer_id)",
    "purchases_pdc": "(price, at, customer_id)",
}
EPOCH = datetime(2026, 1, 1)
SHARE_ROWS = 20_000


def purchase(random: Random, second: int) -> Row:
    return (
        EPOCH + timedelta(seconds=second),
        random.randrange(1000),
        random.randrange(100_000),
        random.randrange(10_000),
        random.randint(1, 50_000),
        text(random, 10),
    )


class InsertSession(SqlSession):
    """Each transaction is one multi-row INSERT."""

    def __init__(self, connection: Any, batch: int) -> None:
        super().__init__(connection)
        self._batch = batch
        row = "(" + ", ".join(["%s"] * len(NAMES)) + ")"
        self._statement = f"INSERT INTO purchases ({', '.join(NAMES)}) VALUES " + ", ".join(
            [row] * batch
        )

    def choose(self, random: Random) -> Callable[[], Done]:
        second = random.randrange(10**8)
        values = [value for _ in range(self._batch) for value in purchase(random, second)]

        def transaction() -> Done:
            self.rows(self._statement, values)
            return Done("insert", 1)

        return transaction


@WORKLOADS.register("insert")
class Insert(SessionWorkload):
    """The insert benchmark. `_expected`: the number of rows on each target.

    A target on which a round failed is not in `_expected`, because its number of rows is unknown.
    """

    summary = "the insert benchmark: three secondary indexes, a batch a transaction"
    options = {"rows": "1000000", "batch": "100"}
    figures = {"rows_per_second": FigureKind("1/s", "higher")}
    headline = "rows_per_second"
    keeps_rows = False
    load_processes = 1  # The server numbers the rows, so shares must be loaded in order.

    def __init__(self, name: str, params: Params) -> None:
        super().__init__(name, params)
        self.rows = scaled_option(self, "rows")
        self.batch = round(number_option(self, "batch", 1, 10_000))
        self._expected: dict[str, int] = {}

    @property
    def about_bytes(self) -> float:
        return self.rows * 180.0

    def create(self, target: Target) -> None:
        key = "BIGINT NOT NULL AUTO_INCREMENT" if target.dialect == "mysql" else "BIGSERIAL"
        columns = (
            f"id {key}, at {date_type(target)} NOT NULL, register_id INT NOT NULL, "
            "customer_id INT NOT NULL, product_id INT NOT NULL, price INT NOT NULL, "
            "data VARCHAR(10) NOT NULL, PRIMARY KEY (id)"
        )
        indexes = [f"{name} {parts}" for name, parts in INDEXES.items()]
        create_table(target, "purchases", columns, *indexes)

    def shares(self) -> list[Share]:
        parts = shares("purchases", self.rows, self._first, SHARE_ROWS)
        return [dataclasses.replace(part, columns=NAMES) for part in parts]

    def session(self, target: Target) -> Callable[[int], InsertSession]:
        return lambda number: InsertSession(target.connect(), self.batch)

    def load(self, target: Target, sink: Sink) -> None:
        super().load(target, sink)
        self._expected[target.name] = self.rows

    def _first(self, numbers: range) -> Iterator[Row]:
        random = Random(f"purchases {self.params.seed} {numbers.start}")
        return (purchase(random, number) for number in numbers)

    def warm(self, target: Target, clock: Clock) -> None:
        """Does nothing: the rows just loaded are in the cache."""

    def measure(self, target: Target, clock: Clock, sink: Sink, number: int) -> Outcome:
        before = self._expected.pop(target.name, None)
        outcome = super().measure(target, clock, sink, number)
        inserted = outcome.transactions * self.batch
        if before is not None:
            self._expected[target.name] = before + outcome.all_transactions * self.batch
        rate = inserted / max(outcome.seconds, 1e-9)
        return dataclasses.replace(outcome, figures={"rows_per_second": rate})

    def check(self, target: Target) -> list[str]:
        """Checks that the primary key and every index hold all acknowledged rows."""
        counts = {"PRIMARY": self._count(target, "PRIMARY", "id > 0")}
        for index in INDEXES:
            column = INDEXES[index][1:].split(",")[0]
            counts[index] = self._count(target, index, f"{column} >= 0")
        expected = self._expected.get(target.name, counts["PRIMARY"])
        return [
            f"{index}: {count} rows, not {expected}"
            for index, count in counts.items()
            if count != expected
        ]

    def _count(self, target: Target, index: str, condition: str) -> int:
        hint = by_index(target, index)
        return int(target.query(f"SELECT COUNT(*) FROM purchases{hint} WHERE {condition}")[0][0])
