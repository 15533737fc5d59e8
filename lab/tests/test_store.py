"""The store keeps its contents unchanged."""

from __future__ import annotations

import sqlite3
from pathlib import Path

import pytest

from firn_lab.clock import SystemClock
from firn_lab.errors import DiskFull, LabError
from firn_lab.histogram import Latency
from firn_lab.store import Reader, Writer
from firn_lab.store.extract import extract
from firn_lab.store.schema import NAMES
from firn_lab.targets import Budget, Settings
from firn_lab.workloads import Params, RoundPart
from firn_lab.workloads.workload import FigureKind


def fill(writer: Writer) -> int:
    run = writer.run("title", ["firn-lab", "run"], "0", {"cores": 2}, Budget(), 3)
    settings = Settings("10.11", 5, True, True, values={"a": "b"})
    target = writer.target(run, "innodb", "engine:innodb", settings)
    case = writer.case(run, "w", "w threads=1", "data", "tps", Params(options={"rows": "5"}))
    for number, tps in enumerate((10.0, 30.0, 20.0)):
        writer.round(
            run, case, target, number, "2026-01-01", dataset="data",
            figures={"tps": (tps, FigureKind("1/s", "higher"))},
            parts=[RoundPart("a", 2, 1.5, Latency(1, 2, 3, 4, 5), 1, 0), RoundPart("b", 1, 1.0)],
            samples=[(0, "tps", 9.0), (1, "tps", 11.0), (1, "qps", 5.0)],
        )  # fmt: skip
    writer.round(run, case, target, 3, "2026-01-01", "failed", "the server died")
    writer.state(run, target, "data", "load", {"data_bytes": (7.0, FigureKind("B"))})
    writer.warning(run, "memory", "differs")
    writer.event(run, "phase", {"phase": "load"})
    return run


def test_what_is_written_can_be_read(tmp_path: Path) -> None:
    writer = Writer(tmp_path / "x.sqlite", SystemClock())
    run = fill(writer)
    with Reader(tmp_path / "x.sqlite") as store:
        assert store.run().status == "running"
    writer.end(run, "ok")
    writer.close()
    with Reader(tmp_path / "x.sqlite") as store:
        found = store.run(run)
        assert (found.status, found.command, found.machine) == (
            "ok",
            ["firn-lab", "run"],
            {"cores": 2},
        )
        (target,), (case,) = store.targets(run), store.cases(run)
        assert target.settings == {"a": "b", "buffered": "yes", "isolation": "unknown"}
        assert (target.durable, target.memory_bytes) == (True, 5)
        assert case.params["options"] == {"rows": "5"}
        rounds = store.rounds(run)
        assert [each.status for each in rounds] == ["ok", "ok", "ok", "failed"]
        assert [each.figures for each in rounds] == [{"tps": 10}, {"tps": 30}, {"tps": 20}, {}]
        first, second = store.parts(rounds[0].id)
        assert (first.name, first.p99_ms, first.errors, second.average_ms) == ("a", 4, 1, None)
        assert store.series(rounds[0].id) == {"tps": [(0, 9), (1, 11)], "qps": [(1, 5)]}
        (state,) = store.state(run)
        assert (state.moment, state.name, state.value, state.unit) == ("load", "data_bytes", 7, "B")
        assert store.figure_kinds(run)["tps"] == FigureKind("1/s", "higher")
        assert [warning.rule for warning in store.warnings(run)] == ["memory"]
        (event,) = store.events(run)
        assert store.events(run, after=event.id) == []


def test_nothing_is_changed_or_deleted(tmp_path: Path) -> None:
    writer = Writer(tmp_path / "x.sqlite", SystemClock())
    writer.end(fill(writer), "ok")
    writer.close()
    connection = sqlite3.connect(tmp_path / "x.sqlite")
    for name in NAMES:
        before = connection.execute(f"SELECT * FROM {name}").fetchall()
        assert before, name
        column = connection.execute(f"PRAGMA table_info({name})").fetchall()[0][1]
        for statement in (f"DELETE FROM {name}", f"UPDATE {name} SET {column} = {column}"):
            with pytest.raises(sqlite3.DatabaseError, match="only grows"):
                connection.execute(statement)
        assert connection.execute(f"SELECT * FROM {name}").fetchall() == before


def test_a_second_run_is_appended(tmp_path: Path) -> None:
    for _ in range(2):
        writer = Writer(tmp_path / "x.sqlite", SystemClock())
        fill(writer)
        writer.close()
    with Reader(tmp_path / "x.sqlite") as store:
        assert [run.id for run in store.runs()] == [1, 2]
        assert len(store.rounds(1)) == len(store.rounds(2)) == 4
        with pytest.raises(LabError, match="has no run 3"):
            store.run(3)


def test_a_full_disk_is_named_and_keeps_what_was_there(tmp_path: Path) -> None:
    writer = Writer(tmp_path / "x.sqlite", SystemClock())
    run = fill(writer)
    pages = writer._connection.execute("PRAGMA page_count").fetchone()[0]
    writer._connection.execute(f"PRAGMA max_page_count = {pages}")
    with pytest.raises(DiskFull, match=r"x\.sqlite"):
        writer.event(run, "phase", {"text": "x" * 100_000})
    writer.close()
    with Reader(tmp_path / "x.sqlite") as store:
        assert len(store.rounds(run)) == 4
        assert len(store.events(run)) == 1


def test_another_schema_is_refused(tmp_path: Path) -> None:
    connection = sqlite3.connect(tmp_path / "x.sqlite")
    connection.execute("PRAGMA user_version = 99")
    connection.close()
    with pytest.raises(LabError, match="schema 99"):
        Writer(tmp_path / "x.sqlite", SystemClock())
    with pytest.raises(LabError, match="schema 99"):
        Reader(tmp_path / "x.sqlite")


def test_a_run_that_goes_on_has_several_ends(tmp_path: Path) -> None:
    writer = Writer(tmp_path / "x.sqlite", SystemClock())
    run = fill(writer)
    found = []
    for status in ("paused", "running", "ok"):
        writer.end(run, status, f"it is {status}")
        with Reader(tmp_path / "x.sqlite") as store:
            assert len(store.runs()) == 1
            found.append((store.run(run).status, store.run(run).message))
    writer.close()
    assert found == [(status, f"it is {status}") for status in ("paused", "running", "ok")]


def test_a_store_of_the_first_version_is_read(tmp_path: Path) -> None:
    """In version 1 a run has one end, without an id."""
    writer = Writer(tmp_path / "x.sqlite", SystemClock())
    run = fill(writer)
    writer.close()
    connection = sqlite3.connect(tmp_path / "x.sqlite")
    connection.executescript(
        "DROP TABLE run_ends; CREATE TABLE run_ends (run INTEGER PRIMARY KEY REFERENCES runs, "
        "ended_at TEXT NOT NULL, status TEXT NOT NULL, message TEXT NOT NULL);"
        f"INSERT INTO run_ends VALUES ({run}, '2026', 'failed', 'why'); PRAGMA user_version = 1"
    )
    connection.close()
    extract(tmp_path / "x.sqlite", run, tmp_path / "new.sqlite")
    for name in ("x", "new"):
        with Reader(tmp_path / f"{name}.sqlite") as store:
            assert (store.run(run).status, store.run(run).message) == ("failed", "why")
            assert len(store.rounds(run)) == 4
    with pytest.raises(LabError, match="has schema 1, this lab writes 2"):
        Writer(tmp_path / "x.sqlite", SystemClock())
