"""Failures are reported, the rounds so far are kept, no process and no data is left."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from types import SimpleNamespace

import pytest
import tiny_workload
from conftest import SMALL, Laboratory, servers_on

from firn_lab.plan import Plan, parse_case
from firn_lab.processes import tree
from firn_lab.report.report_data import collect
from firn_lab.store import Reader
from firn_lab.targets.engine import EngineTarget
from firn_lab.workloads import Params

BOTH = ("engine:innodb", "engine:innodb-compressed")


def plan(failure: str, targets: tuple[str, ...] = BOTH) -> Plan:
    params = Params(threads=2, seconds=0.2, lead_seconds=0.05)
    case = parse_case(f"tiny:fail={failure}", params)
    return Plan("test", "", (case,), targets, blocks=3, budget=SMALL)


def statuses(laboratory: Laboratory) -> dict[str, list[str]]:
    """Statuses of the rounds by target."""
    with laboratory.reader() as store:
        names = {target.id: target.name for target in store.targets(1)}
        found: dict[str, list[str]] = {name: [] for name in names.values()}
        for round_ in store.rounds(1):
            found[names[round_.target]].append(round_.status)
            assert bool(round_.figures) == (round_.status == "ok")
        return found


def test_a_server_that_dies_is_left_out(laboratory: Laboratory) -> None:
    status, message = laboratory.run(plan("kill"))
    assert status == "failed"
    assert "innodb: the server ended with -9" in message
    assert statuses(laboratory) == {"innodb": ["ok", "failed"], "innodb-compressed": ["ok"] * 3}
    (failure,) = [data for kind, data in laboratory.events if kind == "failure"]
    assert failure["target"] == "innodb"
    # The estimate of the time left does not count the rounds of the target that failed.
    last = [data for kind, data in laboratory.events if kind == "step"][-1]
    assert last["done"] == last["steps_total"]
    assert last["seconds_left"] == 0
    # The data of the failed target is removed, its log is kept.
    kept = laboratory.directory / "run-1" / "innodb.log"
    assert str(kept) in failure["message"]
    assert "ready for connections" in kept.read_text()


def test_a_statement_that_fails_costs_one_round(laboratory: Laboratory) -> None:
    status, message = laboratory.run(plan("statement", BOTH[:1]))
    assert status == "failed"
    assert "not_there" in message
    assert statuses(laboratory) == {"innodb": ["ok", "failed", "ok"]}


def test_a_failed_check_is_recorded(laboratory: Laboratory) -> None:
    status, message = laboratory.run(plan("wrong", BOTH[:1]))
    assert status == "failed"
    assert "two and two are five" in message
    assert statuses(laboratory) == {"innodb": ["ok"] * 3 + ["wrong"]}
    with laboratory.reader() as store:
        (result,) = collect(store).results
    assert (result.good, result.figures) == ((), {}), "none of its rounds counts"


@pytest.mark.parametrize(
    ("failure", "status", "message"),
    [
        (
            "full",
            "aborted",
            "the disk is full, says innodb: no space left for the test; the rounds so far are kept",
        ),
        ("interrupt", "interrupted", "stopped by hand; the rounds so far are kept"),
    ],
)
def test_what_ends_the_run_keeps_the_rounds(
    laboratory: Laboratory, failure: str, status: str, message: str
) -> None:
    assert laboratory.run(plan(failure)) == (status, message)
    found = statuses(laboratory)
    assert found["innodb"] in (["ok"], ["ok", "failed"])
    assert found["innodb-compressed"] in (["ok"], ["ok", "ok"]), "the order is drawn"
    with laboratory.reader() as store:
        assert (store.run(1).status, store.run(1).message) == (status, message)


def test_a_disk_that_fills_up_ends_the_run(
    laboratory: Laboratory, monkeypatch: pytest.MonkeyPatch
) -> None:
    def usage(directory: Path) -> SimpleNamespace:
        measured = sum(kind == "round" for kind, _ in laboratory.events)
        return SimpleNamespace(free=(10 << 20) if measured < 3 else (1 << 20))

    monkeypatch.setattr("firn_lab.runner.machine.shutil.disk_usage", usage)
    status, message = laboratory.run(plan(""), free_bytes_min=5 << 20)
    assert status == "aborted"
    assert "the disk is nearly full: 1 MiB are free" in message
    assert sum(map(len, statuses(laboratory).values())) == 3


def test_a_disk_that_fills_up_ends_a_statement_that_goes_on_for_long(
    laboratory: Laboratory, monkeypatch: pytest.MonkeyPatch
) -> None:
    def usage(directory: Path) -> SimpleNamespace:
        stalled = ("measure", 1) in [
            (data.get("phase"), data.get("round")) for _, data in laboratory.events
        ]
        return SimpleNamespace(free=(1 << 20) if stalled else (10 << 20))

    monkeypatch.setattr("firn_lab.runner.disk_watch.LOOK_SECONDS", 0.05)
    monkeypatch.setattr("firn_lab.runner.machine.shutil.disk_usage", usage)
    status, message = laboratory.run(plan("stall", BOTH[:1]), free_bytes_min=5 << 20)
    assert status == "aborted"
    assert "the disk is nearly full: 1 MiB are free" in message
    assert statuses(laboratory) == {"innodb": ["ok", "failed"]}


def test_a_server_that_cannot_be_parked_is_left_out(
    laboratory: Laboratory, monkeypatch: pytest.MonkeyPatch
) -> None:
    def freeze(self: EngineTarget) -> None:
        if self.name == "innodb" and any(kind == "round" for kind, _ in laboratory.events):
            raise PermissionError("no signals today")

    monkeypatch.setattr(EngineTarget, "freeze", freeze)
    status, message = laboratory.run(plan(""))
    assert (status, "no signals today" in message) == ("failed", True)
    assert statuses(laboratory) == {"innodb": ["ok"], "innodb-compressed": ["ok"] * 3}


def test_what_ends_no_run(laboratory: Laboratory, monkeypatch: pytest.MonkeyPatch) -> None:
    """No run ends because of a closed terminal, data that may not fit, other work on the machine,
    or leftovers of an interrupted start."""

    def listen(kind: str, data: object) -> None:
        raise BrokenPipeError

    monkeypatch.setattr(laboratory, "_listen", listen)
    monkeypatch.setattr(tiny_workload.Tiny, "about_bytes", property(lambda self: 2.0**60))
    monkeypatch.setattr("firn_lab.runner.machine.busy_cores", lambda: 1.5)
    monkeypatch.setattr("firn_lab.runner.load_by_others.LoadByOthers.cores", lambda self: 1.7)
    (laboratory.scratch / "mariadb-template.new").mkdir(parents=True)
    assert laboratory.run(plan("", BOTH[:1])) == ("ok", "")
    assert not laboratory.scratch.exists()
    with laboratory.reader() as store:
        assert store.run(1).status == "ok"
        assert len([event for event in store.events(1) if event.kind == "round"]) == 3
        told = {rule: [w.message for w in store.warnings(1) if w.rule == rule]
                for rule in ("room", "busy")}  # fmt: skip
    assert "about 1073741824.0 GiB on 1 servers" in told["room"][0]
    before, within = told["busy"]
    assert "the machine was at other work: 1.5 of" in before
    assert "on innodb: the machine was at other work within a round" in within


def test_a_target_that_does_not_start_is_left_out(
    laboratory: Laboratory, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("firn_lab.targets.engine.find_plugin", _no_plugin)
    status, message = laboratory.run(plan("", ("engine:rocksdb", "engine:innodb")))
    assert (status, message) == ("failed", "no plugin here")
    assert statuses(laboratory) == {"innodb": ["ok"] * 3}
    status, message = laboratory.run(plan("", ("engine:rocksdb",)))
    assert status == "aborted"
    assert "no target can be measured" in message


def _no_plugin(library: str) -> Path:
    from firn_lab.errors import TargetError

    raise TargetError("no plugin here")


# The source of a program that runs firn-lab with the same shortcuts as these tests. Its first
# argument is a fresh data directory of the server, to be copied.
PROGRAM = """
import shutil, signal, sys
# If the tests run in the background or under nohup, their children ignore SIGINT or SIGHUP. This
# program must not, because the tests send both.
signal.signal(signal.SIGINT, signal.default_int_handler)
signal.signal(signal.SIGHUP, signal.SIG_DFL)
from firn_lab.cli import main
from firn_lab.runner import machine
from firn_lab.targets import engine, private
from firn_lab.targets.target import RestState
template = sys.argv.pop(1)
private.PrivateTarget._await_quiet = lambda self, seconds_max: RestState(0.0)
machine.busy_cores = lambda: 0.0
engine.LOG_MIN = 32 << 20
engine.install = lambda directory: shutil.copytree(template, directory)
sys.exit(main())
"""


def command(directory: Path, template: Path) -> subprocess.Popen[str]:
    """Starts firn-lab on two targets, and waits until each had a round.

    From then on at least one of the two servers is frozen at any time.
    """
    process = subprocess.Popen(
        [sys.executable, "-c", PROGRAM, str(template),
         "run", "oltp_point_select:rows=100,tables=1", "--targets", *BOTH, "--memory", "32",
         "--blocks", "50", "--seconds", "1", "--warm-seconds", "0", "--threads", "1",
         "--store", str(directory / "x.sqlite"), "--dir", str(directory / "data"),
         "--free", "1"],
        stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
        env={**os.environ, "PYTHONUNBUFFERED": "1"},
    )  # fmt: skip
    assert process.stdout is not None
    rounds = 0
    for line in process.stdout:
        rounds += 2 * line.startswith("block 1 ")
        if rounds == len(BOTH):
            return process
    raise AssertionError("no round was measured")


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_ctrl_c_keeps_the_rounds_and_leaves_nothing(
    tmp_path: Path, template: Path, number: signal.Signals
) -> None:
    process = command(tmp_path, template)
    assert len(servers_on(tmp_path)) == 2
    process.send_signal(number)
    rest = process.communicate(timeout=120)[0]
    assert process.returncode == 130
    assert "stopped by hand; the rounds so far are kept" in rest
    assert "Traceback" not in rest
    assert servers_on(tmp_path) == []
    assert list((tmp_path / "data").iterdir()) == []
    with Reader(tmp_path / "x.sqlite") as store:
        assert store.run().status == "interrupted"
        assert len(store.rounds(1)) >= 2


# A lab whose children never end. They are sessions of the load driver, or shares of a load.
CHILDREN = """
import os, sys, time, types
from firn_lab.workloads.workload import Params
from firn_lab.workloads import driver, fill

class Stuck:
    def choose(self, random):
        os.write(1, b"works\\n")  # At once: the other one writes, too.
        return lambda: time.sleep(600)

def rows():
    os.write(1, b"works\\n")
    time.sleep(600)

if sys.argv[1] == "drive":
    driver.drive(Params(threads=2, seconds=600), "", None, lambda number: Stuck())
else:
    fill.insert = lambda target, share: rows()
    sink = types.SimpleNamespace(progress=lambda done: None)
    fill.fill(None, [fill.Share("a", rows), fill.Share("b", rows)], sink, 2)
"""


@pytest.mark.parametrize("how", ["drive", "fill"])
def test_a_lab_that_is_killed_takes_its_children_along(how: str) -> None:
    lab = subprocess.Popen([sys.executable, "-c", CHILDREN, how], stdout=subprocess.PIPE, text=True)
    assert lab.stdout is not None
    assert [lab.stdout.readline() for _ in range(2)] == ["works\n"] * 2
    children = [pid for pid in tree(lab.pid) if pid != lab.pid]
    # Two children of the lab, and the guard.
    assert len(children) == 3
    lab.kill()
    lab.wait()
    deadline = time.monotonic() + 60
    while any(map(alive, children)) and time.monotonic() < deadline:
        time.sleep(0.05)
    assert not any(map(alive, children))
    lab.stdout.close()


def alive(pid: int) -> bool:
    """Whether the process still runs; a zombie does not."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[0] != "Z"
    except OSError:
        return False


def test_a_lab_that_is_killed_takes_its_servers_along(tmp_path: Path, template: Path) -> None:
    process = command(tmp_path, template)
    assert len(servers_on(tmp_path)) == 2
    process.kill()
    process.communicate()
    deadline = time.monotonic() + 60
    while servers_on(tmp_path) and time.monotonic() < deadline:
        time.sleep(0.05)
    assert servers_on(tmp_path) == []
    with Reader(tmp_path / "x.sqlite") as store:
        assert store.run().status == "running"
        assert len(store.rounds(1)) >= 2
