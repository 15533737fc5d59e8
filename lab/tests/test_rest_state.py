"""Waiting for a server at rest."""

from __future__ import annotations

from pathlib import Path

import pytest
import tiny_workload  # noqa: F401
from conftest import SMALL, Laboratory

from firn_lab.plan import Plan, parse_case
from firn_lab.targets import Target
from firn_lab.targets.engine import RUSH, EngineTarget
from firn_lab.targets.target import RestState
from firn_lab.workloads import Params

pytestmark = pytest.mark.usefixtures("real_rest")


def dirty_pages(target: Target) -> int:
    return int(target.query("SHOW GLOBAL STATUS LIKE 'Innodb_buffer_pool_pages_dirty'")[0][1])


def make_dirty(target: Target) -> None:
    target.create_database()
    target.query("CREATE TABLE t (a INT PRIMARY KEY, b VARCHAR(1000)) ENGINE=InnoDB")
    target.query("INSERT INTO t SELECT seq, REPEAT('x', 1000) FROM seq_1_to_12000")
    # InnoDB may flush at any time, so repeat until dirty pages are visible.
    for letter in "abcdefghijklmnopqrstuvwxyz":
        if dirty_pages(target) > 100:
            return
        target.query(f"UPDATE t SET b = REPEAT('{letter}', 1000)")
    raise AssertionError("InnoDB writes faster than a statement changes pages")


def test_innodb_at_rest_has_written_every_page(innodb: EngineTarget) -> None:
    usual = {name: innodb.variables()[name] for name in RUSH}
    assert usual["innodb_io_capacity"] != RUSH["innodb_io_capacity"]
    make_dirty(innodb)
    # After the rest, InnoDB's purge may still make pages dirty, but only for a while.
    assert any(innodb.rest(120.0).owes == "" and dirty_pages(innodb) == 0 for _ in range(5))
    assert {name: innodb.variables()[name] for name in RUSH} == usual


def test_a_server_that_does_not_come_to_rest_says_what_it_owes(
    innodb: EngineTarget, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(EngineTarget, "owes", lambda self: "pages to be flushed")
    monkeypatch.setattr(EngineTarget, "_busy", lambda self, seconds: "")
    assert innodb.rest(0.0).owes == "pages to be flushed"
    monkeypatch.setattr(EngineTarget, "_busy", lambda self, seconds: "it writes")
    assert innodb.rest(0.0).owes == "it writes"


def test_writes_alone_are_no_rest(innodb: EngineTarget, monkeypatch: pytest.MonkeyPatch) -> None:
    """A server is not at rest if its engine reports no pending work, but writes."""
    written = iter(range(0, 1 << 40, 1 << 20))
    monkeypatch.setattr(EngineTarget, "owes", lambda self: None)
    monkeypatch.setattr(EngineTarget, "_written_bytes", lambda self: next(written))
    assert innodb.rest(0.3).owes in ("it writes", "it computes")


def test_a_run_tells_of_servers_that_were_not_at_rest(
    laboratory: Laboratory, monkeypatch: pytest.MonkeyPatch
) -> None:
    limits: list[float] = []

    def rest(self: EngineTarget, seconds_max: float) -> RestState:
        limits.append(seconds_max)
        return RestState(1.5, "it writes")

    monkeypatch.setattr(EngineTarget, "rest", rest)
    case = parse_case("tiny", Params(threads=1, seconds=0.2, warm_seconds=0))
    plan = Plan("test", "", (case,), ("engine:innodb",), blocks=2, budget=SMALL)
    assert laboratory.run(plan)[0] == "ok"
    # The lab waits for rest after the load, after the rounds of the case, and at the end.
    assert limits == [240] * 3
    with laboratory.reader() as store:
        told = [warning.message for warning in store.warnings(1) if warning.rule == "rest"]
        assert len(told) == 3
        assert any("its rounds, innodb was not at rest after 240 s: it writes" in t for t in told)
    assert Path(laboratory.store).is_file()
