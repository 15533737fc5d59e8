"""The read side of the store for report, compare, watch and price. Opens the file read-only.

with Reader(path) as store:
    run = store.run("last")
    for each in store.rounds(run.id):
        tps = each.figures["tps"]
"""

from __future__ import annotations

import dataclasses
import json
import sqlite3
from collections.abc import Sequence
from pathlib import Path
from types import TracebackType
from typing import Any

from firn_lab.errors import LabError
from firn_lab.store import schema
from firn_lab.store.rows import (
    CaseRow,
    Event,
    PartRow,
    Round,
    RuleWarning,
    Run,
    StateFigure,
    TargetRow,
)
from firn_lab.targets.target import Budget
from firn_lab.workloads.workload import FigureKind


class Reader:
    """Reads the rows of one run per call; ids are those of the store."""

    def __init__(self, path: Path) -> None:
        if not path.is_file():
            raise LabError(f"{path} is not there: `firn-lab run` makes it")
        self.path = path
        try:
            uri = f"{path.resolve().as_uri()}?mode=ro"
            self._connection = sqlite3.connect(uri, uri=True, timeout=30)
            version = self._connection.execute("PRAGMA user_version").fetchone()[0]
        except sqlite3.Error as error:
            raise LabError(f"{path} is no store of the lab: {error}") from error
        if version not in schema.READABLE:
            raise LabError(f"{path} has schema {version}, this lab reads {schema.VERSION}")

    def __enter__(self) -> Reader:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._connection.close()

    def runs(self) -> list[Run]:
        """All runs, oldest first."""
        rows = self._rows(
            "SELECT runs.id, started_at, title, command, lab_version, machine, budget, rounds, "
            "ended_at, COALESCE(status, 'running'), COALESCE(message, '') "
            "FROM runs LEFT JOIN run_ends ON run = runs.id AND run_ends.rowid = "
            "(SELECT MAX(rowid) FROM run_ends WHERE run = runs.id) ORDER BY runs.id"
        )
        return [
            Run(
                id=row[0],
                started_at=row[1],
                title=row[2],
                command=json.loads(row[3]),
                lab_version=row[4],
                machine=json.loads(row[5]),
                # Runs of earlier versions do not have every field.
                budget={**dataclasses.asdict(Budget()), **json.loads(row[6])},
                rounds=row[7],
                ended_at=row[8],
                status=row[9],
                message=row[10],
            )
            for row in rows
        ]

    def run(self, which: str | int = "last") -> Run:
        """A run by id, or `last`."""
        runs = self.runs()
        if not runs:
            raise LabError(f"{self.path} holds no run")
        if which == "last":
            return runs[-1]
        for run in runs:
            if str(run.id) == str(which):
                return run
        known = ", ".join(str(run.id) for run in runs)
        hint = "" if str(which).isdigit() else " (one of another store is FILE:RUN, to `compare`)"
        raise LabError(f"{self.path} has no run {which}; it has {known}{hint}")

    def targets(self, run: int) -> list[TargetRow]:
        rows = self._rows(
            "SELECT id, name, spec, version, memory_bytes, durable, settings FROM targets "
            "WHERE run = ? ORDER BY id",
            run,
        )
        return [
            TargetRow(
                id=row[0],
                name=row[1],
                spec=row[2],
                version=row[3],
                memory_bytes=row[4],
                durable=None if row[5] is None else bool(row[5]),
                settings=json.loads(row[6]),
            )
            for row in rows
        ]

    def warnings(self, run: int) -> list[RuleWarning]:
        """Broken rules of fairness, and other doubts about the results."""
        rows = self._rows("SELECT rule, message FROM warnings WHERE run = ? ORDER BY id", run)
        return [RuleWarning(*row) for row in rows]

    def cases(self, run: int) -> list[CaseRow]:
        rows = self._rows(
            "SELECT id, workload, label, dataset, headline, params FROM cases WHERE run = ? "
            "ORDER BY id",
            run,
        )
        return [CaseRow(row[0], row[1], row[2], row[3], row[4], json.loads(row[5])) for row in rows]

    def rounds(self, run: int, case: int | None = None, target: int | None = None) -> list[Round]:
        """Rounds with their figures, failed ones included, in the order in which they ran."""
        rows = self._rows(
            'SELECT id, "case", target, number, started_at, status, message FROM rounds '
            'WHERE run = ? AND (? IS NULL OR "case" = ?) AND (? IS NULL OR target = ?) ORDER BY id',
            run, case, case, target, target,
        )  # fmt: skip
        figures: dict[int, dict[str, float]] = {row[0]: {} for row in rows}
        for round_, name, value in self._rows(
            "SELECT round, name, value FROM figures WHERE run = ? AND round IS NOT NULL", run
        ):
            if round_ in figures:
                figures[round_][name] = value
        return [
            Round(row[0], row[1], row[2], row[3], row[4], row[5], row[6], figures[row[0]])
            for row in rows
        ]

    def figure_kinds(self, run: int) -> dict[str, FigureKind]:
        """Unit of every figure of the run, state figures included, and whether higher is better."""
        rows = self._rows("SELECT DISTINCT name, unit, better FROM figures WHERE run = ?", run)
        return {name: FigureKind(unit, better) for name, unit, better in rows}

    def state(self, run: int) -> list[StateFigure]:
        """Figures that belong to no round: space after load, after updates, at rest; load time."""
        return self._state(run, "moment <> 'settled'")

    def settled(self, run: int) -> list[StateFigure]:
        """Usage per transaction of a case, including the work deferred until after its rounds.

        The field `dataset` holds the label of the case.
        """
        return self._state(run, "moment = 'settled'")

    def _state(self, run: int, which: str) -> list[StateFigure]:
        rows = self._rows(
            "SELECT target, dataset, moment, name, value, unit, better FROM figures "
            f"WHERE run = ? AND round IS NULL AND {which} ORDER BY id",
            run,
        )
        return [StateFigure(*row) for row in rows]

    def parts(self, round_: int) -> list[PartRow]:
        """Parts of one round: kinds of transactions, or statements of a list."""
        rows = self._rows(
            "SELECT name, count, seconds, errors, retries, average_ms, p50_ms, p95_ms, p99_ms, "
            "max_ms FROM parts WHERE round = ? ORDER BY rowid",
            round_,
        )
        return [PartRow(*row) for row in rows]

    def series(self, round_: int) -> dict[str, list[tuple[int, float]]]:
        """Raw per-second series of a round by name: `tps`, `qps`, `errors`, `retries`, `p95_ms`,
        and those of the measures."""
        series: dict[str, list[tuple[int, float]]] = {}
        for second, name, value in self._rows(
            "SELECT second, name, value FROM samples WHERE round = ? ORDER BY second", round_
        ):
            series.setdefault(name, []).append((second, value))
        return series

    def events(self, run: int, after: int = 0) -> list[Event]:
        """Events with ids above `after`, for polling. See runner.events for the kinds."""
        rows = self._rows(
            "SELECT id, at, kind, data FROM events WHERE run = ? AND id > ? ORDER BY id", run, after
        )
        return [Event(row[0], row[1], row[2], json.loads(row[3])) for row in rows]

    def _rows(self, statement: str, *arguments: Any) -> Sequence[Any]:
        return self._connection.execute(statement, arguments).fetchall()
