"""The write side of the store, for the runner. Each call is one transaction."""

from __future__ import annotations

import dataclasses
import json
import sqlite3
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, TypeVar

from firn_lab.clock import Clock
from firn_lab.errors import DiskFull, LabError
from firn_lab.store import schema
from firn_lab.targets.target import Budget, Settings
from firn_lab.workloads.workload import FigureKind, Params, RoundPart

T = TypeVar("T")


class Writer:
    """Owns the connection. The file has one writer at a time; readers work concurrently (WAL)."""

    def __init__(self, path: Path, clock: Clock) -> None:
        self.path = path
        self._clock = clock
        try:
            version = self._open()
        except (OSError, sqlite3.Error) as error:
            raise LabError(f"{path} cannot be a store of the lab: {error}") from error
        if version != schema.VERSION:
            raise LabError(
                f"{path} has schema {version}, this lab writes {schema.VERSION}: "
                "name another file with --store"
            )

    def _open(self) -> int:
        """Opens the file and returns its schema version; a new file gets the current schema."""
        self.path.parent.mkdir(parents=True, exist_ok=True)
        # Permit calls from any thread: callers never make two calls at the same time.
        self._connection = sqlite3.connect(self.path, timeout=30, check_same_thread=False)
        self._connection.execute("PRAGMA journal_mode=WAL")
        # Avoid a sync per event, which would disturb the servers. Even so, nothing is lost if the
        # lab is killed.
        self._connection.execute("PRAGMA synchronous=NORMAL")
        version: int = self._connection.execute("PRAGMA user_version").fetchone()[0]
        if version == 0:
            schema.create(self._connection)
        return version or schema.VERSION

    def close(self) -> None:
        self._connection.close()

    def run(
        self,
        title: str,
        command: Sequence[str],
        lab_version: str,
        machine: Mapping[str, Any],
        budget: Budget,
        rounds: int,
    ) -> int:
        """Records the start of a run; returns its id."""
        return self._append(
            "runs",
            started_at=self._now(),
            title=title,
            command=json.dumps(list(command)),
            lab_version=lab_version,
            machine=json.dumps(dict(machine)),
            budget=json.dumps(dataclasses.asdict(budget)),
            rounds=rounds,
        )

    def end(self, run: int, status: str, message: str = "") -> None:
        """Records the end of a run: ok, failed, paused, interrupted or aborted.

        With the status running it records that the run was resumed.
        """
        self._append("run_ends", run=run, ended_at=self._now(), status=status, message=message)

    def target(self, run: int, name: str, spec: str, settings: Settings) -> int:
        return self._append(
            "targets",
            run=run,
            name=name,
            spec=spec,
            version=settings.version,
            memory_bytes=settings.memory_bytes,
            durable=settings.durable,
            settings=json.dumps(
                {
                    "buffered": {True: "yes", False: "no"}.get(settings.buffered, "unknown"),
                    "isolation": settings.isolation or "unknown",
                    **settings.values,
                }
            ),
        )

    def warning(self, run: int, rule: str, message: str) -> None:
        self._append("warnings", run=run, rule=rule, message=message)

    def case(
        self, run: int, workload: str, label: str, dataset: str, headline: str, params: Params
    ) -> int:
        return self._append(
            "cases",
            run=run,
            workload=workload,
            label=label,
            dataset=dataset,
            headline=headline,
            params=json.dumps(dataclasses.asdict(params)),
        )

    def round(
        self,
        run: int,
        case: int,
        target: int,
        number: int,
        started_at: str,
        status: str = "ok",
        message: str = "",
        dataset: str = "",
        figures: Mapping[str, tuple[float, FigureKind]] | None = None,
        parts: Sequence[RoundPart] = (),
        samples: Sequence[tuple[int, str, float]] = (),
    ) -> int:
        """Records a round with everything that belongs to it, atomically."""

        def insert(connection: sqlite3.Connection) -> int:
            number_ = connection.execute(
                'INSERT INTO rounds (run, "case", target, number, started_at, status, message) '
                "VALUES (?, ?, ?, ?, ?, ?, ?)",
                (run, case, target, number, started_at, status, message),
            ).lastrowid
            assert number_ is not None
            connection.executemany(
                "INSERT INTO figures (run, target, dataset, round, moment, name, value, unit, "
                "better) VALUES (?, ?, ?, ?, 'round', ?, ?, ?, ?)",
                [
                    (run, target, dataset, number_, name, value, kind.unit, kind.better)
                    for name, (value, kind) in (figures or {}).items()
                ],
            )
            connection.executemany(
                "INSERT INTO parts VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)",
                [(number_, *_part_row(part)) for part in parts],
            )
            connection.executemany(
                "INSERT INTO samples VALUES (?, ?, ?, ?)",
                [(number_, *sample) for sample in samples],
            )
            return number_

        return self._do(insert)

    def state(
        self,
        run: int,
        target: int,
        dataset: str,
        moment: str,
        figures: Mapping[str, tuple[float, FigureKind]],
    ) -> None:
        """Records figures of a dataset on a target at a moment."""
        self._do(
            lambda connection: connection.executemany(
                "INSERT INTO figures (run, target, dataset, moment, name, value, unit, better) "
                "VALUES (?, ?, ?, ?, ?, ?, ?, ?)",
                [
                    (run, target, dataset, moment, name, value, kind.unit, kind.better)
                    for name, (value, kind) in figures.items()
                ],
            )
        )

    def event(self, run: int, kind: str, data: Mapping[str, Any]) -> None:
        self._append(
            "events",
            run=run,
            at=self._clock.now().timestamp(),
            kind=kind,
            data=json.dumps(dict(data)),
        )

    def _now(self) -> str:
        return self._clock.now().isoformat(timespec="milliseconds")

    def _append(self, table: str, **values: Any) -> int:
        marks = ", ".join("?" * len(values))
        statement = f"INSERT INTO {table} ({', '.join(values)}) VALUES ({marks})"
        done = self._do(lambda c: c.execute(statement, tuple(values.values())).lastrowid)
        assert done is not None
        return done

    def _do(self, work: Callable[[sqlite3.Connection], T]) -> T:
        try:
            with self._connection:
                return work(self._connection)
        except sqlite3.OperationalError as error:
            if "full" in str(error) or "disk I/O" in str(error):
                raise DiskFull(f"cannot write {self.path}: {error}") from error
            raise LabError(f"cannot write {self.path}: {error}") from error


def _part_row(part: RoundPart) -> tuple[Any, ...]:
    latency = part.latency
    return (
        part.name,
        part.count,
        part.seconds,
        part.errors,
        part.retries,
        *(dataclasses.astuple(latency)[:5] if latency else (None,) * 5),
    )
