"""Fixtures. The servers of these tests are InnoDB only, small and short-lived."""

from __future__ import annotations

import shutil
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from firn_lab.clock import SystemClock
from firn_lab.measures import ssd
from firn_lab.plan import Plan
from firn_lab.runner.run import Runner
from firn_lab.store import Reader, Writer
from firn_lab.targets import Budget, Target, engine, make_target, private
from firn_lab.targets.target import RestState
from firn_lab.workloads import Outcome, Params, Second, Workload, make_workload

SMALL = Budget(memory_bytes=32 << 20)


AWAIT_QUIET = private.PrivateTarget._await_quiet


@pytest.fixture(scope="session")
def template(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A fresh data directory that all tests share."""
    directory = tmp_path_factory.mktemp("template") / "data"
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(engine, "SMALL_LOG", SMALL.memory_bytes)
        engine.install(directory)
    return directory


@pytest.fixture(scope="session", autouse=True)
def quick_servers(template: Path) -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        # InnoDB takes a second or two to come to rest after its last write; only tests with the
        # fixture `real_rest` wait for that.
        patch.setattr(
            private.PrivateTarget, "_await_quiet", lambda self, seconds_max: RestState(0.0)
        )
        # Keep InnoDB's log at the size that it has in the template, so that no server recreates its
        # log.
        patch.setattr(engine, "LOG_MIN", SMALL.memory_bytes)
        patch.setattr(ssd, "SAMPLE_BYTES", 1 << 20)
        # Do not look for other work on the machine: tests that run in parallel would count as such
        # work.
        patch.setattr("firn_lab.runner.machine.busy_cores", lambda: 0.0)
        patch.setattr("firn_lab.runner.load_by_others.LoadByOthers.cores", lambda self: 0.0)
        patch.setattr(engine, "install", lambda directory: shutil.copytree(template, directory))
        yield


@pytest.fixture
def real_rest(monkeypatch: pytest.MonkeyPatch) -> None:
    """Makes servers wait until they are really at rest, but with a short period of quiet."""
    monkeypatch.setattr(private.PrivateTarget, "_await_quiet", AWAIT_QUIET)
    monkeypatch.setattr(private, "QUIET_SECONDS", 0.03)


@pytest.fixture
def no_purge(monkeypatch: pytest.MonkeyPatch) -> None:
    """Servers that start in the test do not purge, for tests that kill them.

    At a start after a kill, InnoDB's purge sometimes aborts the server (10.11.19).
    """
    command = engine.EngineTarget._command
    monkeypatch.setattr(
        engine.EngineTarget,
        "_command",
        lambda self: [*command(self), "--innodb-force-recovery=2"],
    )


class Laboratory:
    """Runs plans in a directory of the test, and records the runner's events."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self.store = directory / "lab.sqlite"
        self.scratch = directory / "data"
        self.events: list[tuple[str, Mapping[str, Any]]] = []

    def run(self, plan: Plan, free_bytes_min: int = 1 << 20) -> tuple[str, str]:
        clock = SystemClock()
        writer = Writer(self.store, clock)
        try:
            return Runner(
                plan, writer, self._listen, clock, self.scratch, ["test"], free_bytes_min
            ).run()
        finally:
            writer.close()

    def _listen(self, kind: str, data: Mapping[str, Any]) -> None:
        self.events.append((kind, data))

    def reader(self) -> Reader:
        return Reader(self.store)


@dataclass
class Heard:
    """A sink that records all reports."""

    seconds: list[Second] = field(default_factory=list)
    done: float = 0.0
    leads: int = 0

    def second(self, second: Second) -> None:
        self.seconds.append(second)

    def measured(self) -> None:
        assert self.seconds == []
        self.leads += 1

    def progress(self, done: float) -> None:
        assert self.done <= done <= 1 or done < self.done == 1
        self.done = done


@pytest.fixture(scope="module")
def innodb(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Target]:
    """A server for the tests of a module; each test recreates the database."""
    target = make_target("engine:innodb", SMALL, tmp_path_factory.mktemp("innodb"))
    try:
        target.start()
        yield target
    finally:
        target.destroy()


def made(target: Target, name: str, sink: Heard | None = None, **fields: Any) -> Workload:
    """A workload whose data is loaded on the target.

    Keyword arguments that are no fields of Params are options of the workload.
    """
    known = {key: fields.pop(key) for key in ("scale", "threads", "seconds", "seed")
             if key in fields}  # fmt: skip
    options = {key: str(value) for key, value in fields.items()}
    times = {"seconds": 0.7, "lead_seconds": 0.0, "warm_seconds": 0.1}
    params = Params(**{"threads": 2, **times, **known}, options=options)
    workload = make_workload(name, params)
    assert workload.supports(target) == ""
    target.create_database()
    workload.load(target, sink or Heard())
    return workload


def run_round(
    workload: Workload, target: Target, sink: Heard | None = None, number: int = 0
) -> Outcome:
    """Warms, prepares and measures a round, and checks its data and figures."""
    clock = SystemClock()
    workload.warm(target, clock)
    workload.prepare(target, Heard())
    try:
        outcome = workload.measure(target, clock, sink or Heard(), number)
    finally:
        workload.leave(target)
    assert workload.check(target) == []
    assert outcome.transactions > 0
    assert outcome.queries >= outcome.transactions
    assert outcome.errors == 0
    assert outcome.seconds > 0
    assert set(outcome.figures) <= set(workload.figures)
    return outcome


def servers_on(directory: Path) -> list[str]:
    """Command lines of processes whose data directory this is."""
    found = []
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            try:
                line = (entry / "cmdline").read_bytes().replace(b"\0", b" ").decode()
            except OSError:
                continue
            if f"--datadir={directory}" in line:
                found.append(line)
    return found


@pytest.fixture
def laboratory(tmp_path: Path) -> Iterator[Laboratory]:
    """A laboratory; afterwards none of its servers and no data may be left."""
    lab = Laboratory(tmp_path)
    yield lab
    assert servers_on(tmp_path) == []
    assert not lab.scratch.exists()
