"""One stream of the 22 queries, in order. All targets and rounds must return the same rows."""

from __future__ import annotations

import math
import re
from collections.abc import Sequence
from decimal import Decimal
from pathlib import Path
from typing import Any

import psycopg
import pymysql

from firn_lab.clock import Clock
from firn_lab.errors import CheckFailed, UsageError
from firn_lab.targets.target import Target
from firn_lab.workloads.sql_session import SqlSession, number_option
from firn_lab.workloads.tpch.data import load_tables
from firn_lab.workloads.workload import (
    WORKLOADS,
    FigureKind,
    Outcome,
    Params,
    RoundPart,
    Sink,
    Workload,
)

NUMBERS = range(1, 23)
# Largest difference of two results that count as equal. Servers round quotients differently;
# MariaDB keeps at least six decimals.
TOLERANCE = 1e-5


def queries(scale: float) -> dict[int, str]:
    """The queries by number. Query 11 contains a fraction that depends on the scale."""
    pieces = re.split(r"-- query (\d+)\n", Path(__file__).with_name("queries.sql").read_text())
    fraction = f"{0.0001 / scale:.10f}"
    return {
        int(number): text.strip().rstrip(";").replace("FRACTION", fraction)
        for number, text in zip(pieces[1::2], pieces[2::2], strict=True)
    }


def plain(rows: Sequence[Sequence[Any]]) -> list[list[float | str]]:
    """Rows in comparable form: numbers as floats, other values as text without trailing spaces.

    The rows are sorted, because some queries leave their order open.
    """
    found = [
        [float(value) if isinstance(value, int | float | Decimal) else str(value).rstrip()
         for value in row]
        for row in rows
    ]  # fmt: skip
    return sorted(found, key=str)


def same(first: list[list[float | str]], second: list[list[float | str]]) -> bool:
    if [len(row) for row in first] != [len(row) for row in second]:
        return False
    return all(
        math.isclose(a, b, rel_tol=1e-9, abs_tol=TOLERANCE)
        if isinstance(a, float) and isinstance(b, float)
        else a == b
        for one, other in zip(first, second, strict=True)
        for a, b in zip(one, other, strict=True)
    )


def given_up(error: Exception) -> bool:
    """Whether the server ended a statement for its time limit, in MariaDB, MySQL or PostgreSQL."""
    if isinstance(error, pymysql.MySQLError):
        return error.args[:1] in ((1969,), (3024,))
    return isinstance(error, psycopg.errors.QueryCanceled)


# About what the tables of scale factor 1 take in InnoDB.
FACTOR_BYTES = 2.2e9


@WORKLOADS.register("tpch")
class TpcH(Workload):
    """Runs the 22 queries. `_answers`: by query, the first target that answered and its rows."""

    summary = "the 22 queries of TPC-H, one stream"
    # sf: the scale factor, 1 is about 1 GB. cache: the size as a multiple of the target's cache,
    # replaces sf. limit: seconds until a query is aborted.
    options = {"sf": "1", "cache": "", "limit": "600"}
    figures = {
        "geometric_mean_seconds": FigureKind("s"),
        **{f"q{number:02d}_seconds": FigureKind("s") for number in NUMBERS},
    }
    timed = False
    headline = "seconds"
    counts_transactions = False
    writes = False

    def __init__(self, name: str, params: Params) -> None:
        super().__init__(name, params)
        factor = number_option(self, "sf", 0.01, 10_000)
        if self.option("cache"):
            cache = number_option(self, "cache", 0.001, 1000)
            factor = cache * params.memory_bytes / FACTOR_BYTES
        self.scale = round(factor * params.scale, 3)
        if self.scale < 0.01:
            raise UsageError(f"{name}: below a scale factor of 0.01 parts have a supplier twice")
        self.limit = round(number_option(self, "limit", 1, 86_400))
        self._answers: dict[int, tuple[str, list[list[float | str]]]] = {}

    @property
    def label(self) -> str:
        """The label has no thread count, because the workload always uses one thread."""
        disk = f" disk={self.params.disk}" if self.params.disk else ""
        return f"{self.dataset}{disk}"

    @property
    def dataset(self) -> str:
        return f"{self.name} sf={self.scale:g}"

    @property
    def about_bytes(self) -> float:
        return self.scale * FACTOR_BYTES

    def load(self, target: Target, sink: Sink) -> None:
        load_tables(target, self.scale, sink)
        target.analyze()

    def measure(self, target: Target, clock: Clock, sink: Sink, number: int) -> Outcome:
        # The server itself aborts a query that exceeds the limit. If the server has not done so a
        # minute later, it hangs, and the client gives up.
        patience = {"read_timeout": self.limit + 60} if target.dialect == "mysql" else {}
        session = SqlSession(target.connect(**patience))
        parts, wrong = [], []
        try:
            self._set_limit(target, session)
            for query, statement in queries(self.scale).items():
                name = f"q{query:02d}"
                began = clock.monotonic()
                rows = self._ask(session, statement)
                seconds = clock.monotonic() - began
                parts.append(
                    RoundPart(name, int(rows is not None), seconds, errors=int(rows is None))
                )
                if rows is not None and not self._agrees(target, query, rows):
                    wrong.append(f"{name} is answered otherwise than by {self._answers[query][0]}")
                sink.progress(query / len(NUMBERS))
        finally:
            session.close()
        if wrong:
            raise CheckFailed("; ".join(wrong))
        figures = {f"{part.name}_seconds": part.seconds for part in parts}
        logs = [math.log(max(part.seconds, 1e-6)) for part in parts]
        figures["geometric_mean_seconds"] = math.exp(sum(logs) / len(logs))
        return Outcome(
            transactions=sum(part.count for part in parts),
            queries=session.queries,
            seconds=sum(part.seconds for part in parts),
            errors=sum(part.errors for part in parts),
            parts=tuple(parts),
            figures=figures,
        )

    def _ask(self, session: SqlSession, statement: str) -> list[Any] | None:
        """The rows of a query; None if the server aborted it for its time limit."""
        try:
            return session.rows(statement)
        except Exception as error:
            if not given_up(error):
                raise
            session.rollback()
            return None

    def _set_limit(self, target: Target, session: SqlSession) -> None:
        if target.dialect == "postgresql":
            session.rows(f"SET statement_timeout = '{self.limit}s'")
            return
        try:
            session.rows(f"SET max_statement_time = {self.limit}")
        except pymysql.MySQLError:  # MySQL has another variable, in milliseconds.
            session.rows(f"SET max_execution_time = {self.limit * 1000}")

    def _agrees(self, target: Target, query: int, rows: list[Any]) -> bool:
        answer = plain(rows)
        _, expected = self._answers.setdefault(query, (target.name, answer))
        return same(answer, expected)
