"""Frozen servers: they do nothing, continue after a thaw, and can be ended while frozen."""

from __future__ import annotations

import dataclasses
import time
from pathlib import Path

import pytest
import tiny_workload  # noqa: F401  registers the workload
from conftest import SMALL, Laboratory

from firn_lab.plan import Plan, parse_case
from firn_lab.processes import processor_seconds
from firn_lab.report.remarks import commands
from firn_lab.report.report_data import collect
from firn_lab.targets import Target, make_target
from firn_lab.targets.engine import EngineTarget
from firn_lab.workloads import Params


def states(pid: int) -> set[str]:
    """State letters of all threads."""
    return {
        task.joinpath("stat").read_text().rsplit(")", 1)[1].split()[0]
        for task in Path(f"/proc/{pid}/task").iterdir()
    }


def test_a_frozen_server_does_nothing_and_goes_on(innodb: EngineTarget) -> None:
    """An open session survives the freeze."""
    connection = innodb.connect("")
    assert innodb.pid is not None
    innodb.freeze()
    try:
        # No thread runs after `freeze` returned.
        assert states(innodb.pid) == {"T"}
        used = processor_seconds(innodb.pids)
        time.sleep(0.1)
        assert processor_seconds(innodb.pids) == used
        innodb.freeze()  # A second call has no effect.
    finally:
        innodb.thaw()
    with connection.cursor() as cursor:
        cursor.execute("SELECT 1")
        assert cursor.fetchall() == ((1,),)
    connection.close()


@pytest.mark.parametrize("end", ["stop", "kill", "destroy"])
def test_a_frozen_server_can_be_ended(tmp_path: Path, end: str) -> None:
    target: Target = make_target("engine:innodb@frozen", SMALL, tmp_path)
    try:
        target.start()
        target.freeze()
        pid = target.pid
        getattr(target, end)()
        assert target.pid is None and not Path(f"/proc/{pid}").exists()
        if end != "destroy":
            # The server starts like one that was never frozen.
            target.start()
            assert target.query("SELECT 1", database="") == [(1,)]
    finally:
        target.destroy()


def test_targets_of_one_engine_are_told_apart(tmp_path: Path) -> None:
    plugin = tmp_path / "build.so"
    plugin.write_bytes(b"")
    before = make_target(f"engine:firn@before={plugin}", SMALL, tmp_path)
    after = make_target("engine:firn@after", SMALL, tmp_path)
    assert (before.name, after.name) == ("firn@before", "firn@after")
    assert before.spec == f"engine:firn@before={plugin}"
    assert before.create_suffix() == after.create_suffix() == " ENGINE=FIRN"
    assert isinstance(before, EngineTarget) and isinstance(after, EngineTarget)
    assert before.directory != after.directory
    links = tmp_path / "links"
    before._link_plugins(links)
    assert [(each.name, each.resolve()) for each in links.iterdir()] == [("ha_firn.so", plugin)]
    assert before.lacks() == ""
    plugin.unlink()
    assert before.lacks() == f"{plugin} is not there"


@pytest.mark.parametrize("anew", [False, True])
def test_servers_start_anew_for_each_round(
    laboratory: Laboratory, monkeypatch: pytest.MonkeyPatch, anew: bool
) -> None:
    """A target starts once for the run, and with `new_servers` for each of its rounds."""
    starts: list[str] = []
    command = EngineTarget._command

    def counted(self: EngineTarget) -> list[str]:
        starts.append(self.name)
        return command(self)

    monkeypatch.setattr(EngineTarget, "_command", counted)
    case = parse_case("tiny", Params(threads=1, seconds=0.1, lead_seconds=0, warm_seconds=0))
    names = ["innodb", "innodb-compressed"]
    targets = tuple(f"engine:{name}" for name in names)
    budget = dataclasses.replace(SMALL, new_servers=anew)
    plan = Plan("anew", "", (case,), targets, blocks=2, budget=budget)
    assert laboratory.run(plan) == ("ok", "")
    with laboratory.reader() as reader:
        assert [each.status for each in reader.rounds(1)] == ["ok"] * 4
        again = list(commands(collect(reader)).values())[1:]
    assert [("--new-servers" in command) for command in again] == [anew]
    measured = {name: starts.count(name) for name in names}
    if anew:
        # One start more for the load, one for each round, and one for the rest.
        assert all(count >= 4 for count in measured.values()), measured
    else:
        assert set(measured.values()) == {1}, measured
