"""A run that several calls execute, one slice each: every slice continues where the last one
ended."""

from __future__ import annotations

from pathlib import Path

import pytest
import tiny_workload
from conftest import SMALL, Laboratory

from firn_lab.clock import SystemClock
from firn_lab.errors import UsageError
from firn_lab.plan import Plan, parse_case
from firn_lab.report.report_data import collect
from firn_lab.runner.prepared_plan import prepare_plan
from firn_lab.runner.resume import before
from firn_lab.runner.run import Runner
from firn_lab.store import Reader, Writer
from firn_lab.workloads import Params

BASE = Params(threads=1, seconds=0.1, lead_seconds=0.05, warm_seconds=0)
# Each of these cases has tables of its own.
CASES = tuple(parse_case(f"tiny:scale={n}", BASE) for n in (1, 2, 3))
PLAN = Plan("slices", "", CASES, ("engine:innodb",), blocks=2, budget=SMALL)


class Steps:
    """A clock that a test advances."""

    def __init__(self) -> None:
        self._real = SystemClock()
        self.minutes = 0

    def monotonic(self) -> float:
        return self.minutes * 60.0 + self._real.monotonic() * 1e-3

    def sleep(self, seconds: float) -> None:
        self._real.sleep(seconds)

    def now(self):  # noqa: ANN201
        return self._real.now()


def one_slice(
    laboratory: Laboratory, plan: Plan, minutes_a_case: int, limit: float
) -> tuple[str, str]:
    """Runs one slice, a call with `--resume`, in which every case takes this many minutes."""
    clock = Steps()

    def listen(kind: str, data: object) -> None:
        clock.minutes += minutes_a_case if kind == "case" else 0

    found = before(laboratory.store, plan, prepare_plan(plan, laboratory.scratch))
    writer = Writer(laboratory.store, clock)
    try:
        return Runner(
            plan, writer, listen, clock, laboratory.scratch, ["test"], 1 << 20, found, limit * 60
        ).run()
    finally:
        writer.close()


def test_a_slice_ends_before_a_case_that_would_be_too_long(laboratory: Laboratory) -> None:
    limit = 70.0
    ended = one_slice(laboratory, PLAN, 71, limit)
    assert ended == ("paused", "2 cases are left: go on with --resume")
    with Reader(laboratory.store) as store:
        assert [len(store.rounds(1, case.id)) for case in store.cases(1)] == [2, 0, 0]
    # The next call adds its results to the same run.
    assert one_slice(laboratory, PLAN, 71, limit)[0] == "paused"
    assert one_slice(laboratory, PLAN, 71, limit) == ("ok", "")
    with Reader(laboratory.store) as store:
        assert [run.status for run in store.runs()] == ["ok"]
        assert len(store.targets(1)) == 1 and len(store.cases(1)) == 3
        assert [len(each.good) for each in collect(store).results] == [2, 2, 2]
        assert [e.data["case"] for e in store.events(1) if e.kind == "case"] == [
            case.label for case in store.cases(1)
        ]
    # The run is finished, so the next call begins another run.
    assert before(laboratory.store, PLAN, prepare_plan(PLAN, laboratory.scratch)) is None


def test_blocks_of_a_case_that_was_broken_off_count(
    laboratory: Laboratory, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The second round is interrupted; the next call with `--resume` begins with it."""
    case = parse_case("tiny:fail=interrupt", BASE)
    plan = Plan("broken", "", (case,), ("engine:innodb",), blocks=3, budget=SMALL)
    assert laboratory.run(plan)[0] == "interrupted"
    found = before(laboratory.store, plan, prepare_plan(plan, laboratory.scratch))
    assert found is not None and found.finished == frozenset()
    (values,) = found.values.values()
    assert list(values["innodb"]) == [0]
    monkeypatch.setattr(tiny_workload.Tiny, "option", lambda self, key: "")
    assert one_slice(laboratory, plan, 1, 70.0) == ("ok", "")
    with Reader(laboratory.store) as store:
        assert [r.number for r in store.rounds(1)] == [0, 1, 2]
        (result,) = collect(store).results
        assert len(result.good) == 3


def test_another_plan_does_not_go_on_with_it(laboratory: Laboratory, tmp_path: Path) -> None:
    assert before(tmp_path / "none.sqlite", PLAN, prepare_plan(PLAN, laboratory.scratch)) is None
    one_slice(laboratory, PLAN, 71, 70.0)
    other = Plan("slices", "", CASES[:2], ("engine:innodb",), blocks=2, budget=SMALL)
    with pytest.raises(UsageError, match="has other cases, targets or another budget"):
        before(laboratory.store, other, prepare_plan(other, laboratory.scratch))
    unlike = Plan("unlike", "", CASES, ("engine:innodb",), blocks=2, budget=SMALL)
    assert before(laboratory.store, unlike, prepare_plan(unlike, laboratory.scratch)) is None
