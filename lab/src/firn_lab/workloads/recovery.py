"""Restart times: after a kill with a given amount written since the last rest, and after a clean
stop.

Afterwards all committed rows must be there, and nothing of the transaction that was open.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from random import Random

from firn_lab.clock import Clock
from firn_lab.targets.target import Target
from firn_lab.workloads.fill import Row, fill, shares
from firn_lab.workloads.sql_session import (
    SqlSession,
    create_table,
    digest,
    md5,
    number_option,
    scaled_option,
    text,
)
from firn_lab.workloads.workload import (
    WORKLOADS,
    FigureKind,
    Outcome,
    Params,
    RoundPart,
    Sink,
    Workload,
)

ROW_BYTES = 1000
BATCH_ROWS = 50
# Rows of the open transaction when the server is killed.
OPEN_ROWS = 500


def content(seed: int, number: int, version: int) -> str:
    return text(Random(f"recovery {seed} {number} {version}"), ROW_BYTES)


@WORKLOADS.register("recovery")
class Recovery(Workload):
    """Measures restarts. `_versions`: by target, the last committed version of each row."""

    summary = "restart after a kill with log_mb MiB of rows written, and after a clean stop"
    options = {"rows": "100000", "log_mb": "64"}
    figures = {
        "recovery_seconds": FigureKind("s"),
        "first_scan_seconds": FigureKind("s"),
        "stop_seconds": FigureKind("s"),
        "restart_seconds": FigureKind("s"),
        "written_bytes": FigureKind("B"),
    }
    timed = False
    headline = "recovery_seconds"
    counts_transactions = False

    def __init__(self, name: str, params: Params) -> None:
        super().__init__(name, params)
        self.rows = scaled_option(self, "rows", OPEN_ROWS)
        self.log_bytes = round(number_option(self, "log_mb", 0.01, 1 << 20) * (1 << 20))
        self._versions: dict[str, list[int]] = {}

    @property
    def about_bytes(self) -> float:
        return self.rows * 1100.0 + self.log_bytes

    def supports(self, target: Target) -> str:
        if target.data_dir is None:
            return "only servers that the lab may kill"
        return super().supports(target)

    def load(self, target: Target, sink: Sink) -> None:
        create_table(
            target,
            "recovered",
            f"id INT NOT NULL, version INT NOT NULL, digest CHAR(32) NOT NULL, "
            f"data VARCHAR({ROW_BYTES}) NOT NULL, PRIMARY KEY (id)",
            "recovered_version (version, id)",
        )
        fill(target, shares("recovered", self.rows, self._first, 10_000), sink)
        self._versions[target.name] = [0] * (self.rows + 1)
        target.analyze()

    def _first(self, numbers: range) -> Iterator[Row]:
        for number in numbers:
            data = content(self.params.seed, number, 0)
            yield number, 0, digest(data), data

    def prepare(self, target: Target, sink: Sink) -> bool:
        """Asks for a rest before the round, so that the log contains only the round's writes."""
        return True

    def measure(self, target: Target, clock: Clock, sink: Sink, number: int) -> Outcome:
        session = SqlSession(target.connect(autocommit=False))
        random = Random(f"{self.params.seed}/round {number}")
        batches = max(1, self.log_bytes // (BATCH_ROWS * ROW_BYTES))
        began = clock.monotonic()
        for batch in range(batches):
            self._update(target, session, random)
            sink.progress((batch + 1) / (batches + 1))
        writing = clock.monotonic() - began
        # This transaction is never committed.
        session.rows("UPDATE recovered SET version = -1 WHERE id <= %s", (OPEN_ROWS,))
        target.kill()
        session.close()
        recovery = _seconds(clock, target.start)
        scan = _seconds(clock, lambda: target.query("SELECT SUM(LENGTH(data)) FROM recovered"))
        stop = _seconds(clock, target.stop)
        restart = _seconds(clock, target.start)
        sink.progress(1)
        times = {
            "write": writing, "recovery": recovery, "first_scan": scan, "stop": stop,
            "restart": restart,
        }  # fmt: skip
        figures = {f"{name}_seconds": value for name, value in times.items() if name != "write"}
        figures["written_bytes"] = float(batches * BATCH_ROWS * ROW_BYTES)
        parts = tuple(RoundPart(name, 1, value) for name, value in times.items())
        return Outcome(batches, session.queries, writing, parts=parts, figures=figures)

    def _update(self, target: Target, session: SqlSession, random: Random) -> None:
        """Runs a transaction; its versions count as committed once the server acknowledged it."""
        versions = self._versions[target.name]
        numbers = sorted(random.sample(range(1, self.rows + 1), BATCH_ROWS))
        for number in numbers:
            version = versions[number] + 1
            data = content(self.params.seed, number, version)
            session.rows(
                "UPDATE recovered SET version = %s, digest = %s, data = %s WHERE id = %s",
                (version, digest(data), data, number),
            )
        session.commit()
        for number in numbers:
            versions[number] += 1

    def check(self, target: Target) -> list[str]:
        """Checks every row, and the index."""
        found = dict(target.query("SELECT id, version FROM recovered"))
        expected = dict(enumerate(self._versions[target.name][1:], 1))
        wrong = [
            f"row {number} has version {found.get(number)}, {version} was committed"
            for number, version in expected.items()
            if found.get(number) != version
        ][:5]
        if len(found) != self.rows:
            wrong.append(f"{len(found)} rows, not {self.rows}")
        broken = target.query(
            f"SELECT COUNT(*) FROM recovered WHERE {md5(target, 'data')} <> digest"
        )[0][0]
        if broken:
            wrong.append(f"{broken} rows do not fit their digest")
        counted = target.query("SELECT SUM(version), COUNT(*) FROM recovered WHERE version >= 0")[0]
        if tuple(counted) != (sum(expected.values()), self.rows):
            wrong.append(f"the index has {counted[1]} rows with versions of {counted[0]} in all")
        return wrong


def _seconds(clock: Clock, work: Callable[[], object]) -> float:
    began = clock.monotonic()
    work()
    return clock.monotonic() - began
