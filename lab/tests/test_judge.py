"""Limits: met if the lower end of the interval reaches them."""

from __future__ import annotations

from pathlib import Path

import fake_stores
import pytest

from firn_lab import cli
from firn_lab.clock import SystemClock
from firn_lab.intervals import Interval
from firn_lab.report.conclusions import _verdict, judge, turned
from firn_lab.report.report_data import collect
from firn_lab.store import Reader, Writer
from firn_lab.targets import Budget, Settings
from firn_lab.workloads import Params
from firn_lab.workloads.workload import FigureKind

TPS = FigureKind("1/s", "higher")
US = FigureKind("µs")


def run_of(path: Path, ratios: list[float], cpu: float = 1.0) -> Path:
    """A run of two builds with these ratios, after ÷ before, in each block."""
    writer = Writer(path, SystemClock())
    run = writer.run("builds", ["firn-lab"], "0", fake_stores.MACHINE, Budget(), 60)
    names = ("firn@before", "firn@after")
    settings = Settings("10.11", 5, True)
    ids = [writer.target(run, name, f"engine:{name}", settings) for name in names]
    case = writer.case(run, "rw", "rw", "d", "tps", Params())
    for number, ratio in enumerate(ratios):
        for place, target in enumerate(ids):
            tps = 1000.0 * (1 + number / 10) * (ratio if place else 1.0)
            figures = {
                "tps": (tps, TPS),
                "seconds": (2.0, FigureKind("s")),
                "transactions": (tps * 2, FigureKind("")),
                "cpu_us_per_transaction": (50.0 * (cpu if place else 1.0), US),
            }
            writer.round(run, case, target, number, "2026-01-01", figures=figures)
    writer.end(run, "ok")
    writer.close()
    return path


@pytest.mark.parametrize(
    ("ratios", "limit", "verdict", "code"),
    [
        ([1.0, 1.01] * 10, "0.98", "met", 0),
        ([0.95, 0.96] * 10, "0.98", "missed", 1),
        ([0.90, 1.06] * 10, "0.98", "undecided", 3),
        ([1.2] * 2, "0.98", "undecided", 3),  # Two blocks prove nothing.
        # The typical block meets the limit, but all blocks together miss it.
        ([1.0] * 17 + [0.2] * 3, "0.98", "undecided", 3),
    ],
)
def test_a_limit_is_met_by_the_lower_end(
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    ratios: list[float],
    limit: str,
    verdict: str,
    code: int,
) -> None:
    store = run_of(tmp_path / "x.sqlite", ratios)
    assert cli.main(["judge", "--store", str(store), "--at-least", limit]) == code
    out = capsys.readouterr().out
    assert "firn@after ÷ firn@before" in out and f"{verdict}: ≥ {limit}" in out


def test_costs_are_turned(tmp_path: Path) -> None:
    """A cost is judged by reference ÷ target: a tenth less processor time gives the ratio 1.11."""
    store = run_of(tmp_path / "x.sqlite", [1.0] * 15, cpu=0.9)
    with Reader(store) as reader:
        (found,) = judge(collect(reader), 1.1, "cpu_us_per_transaction")
    assert found.ratio.value == pytest.approx(1 / 0.9) and found.verdict == "met"
    assert turned(Interval(2.0, 1.0, 4.0, 9)) == Interval(0.5, 0.25, 1.0, 9)


def test_what_is_not_there_is_no_verdict(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    store = run_of(tmp_path / "x.sqlite", [1.0] * 15)
    for more in (["--figure", "no_such"], ["--target", "moon"]):
        assert cli.main(["judge", "--store", str(store), "--at-least", "1", *more]) == 1
        assert "nothing to judge" in capsys.readouterr().err


def test_the_edges_of_a_verdict() -> None:
    known = Interval(0.99, 0.98, 1.0, 20)
    assert _verdict(known, None, 0.98) == "met"
    assert _verdict(known, None, 0.981) == "undecided"
    assert _verdict(known, None, 1.001) == "missed"
    assert _verdict(known, Interval(0.97, 0.95, 0.979, 20), 0.98) == "missed"
    assert _verdict(known, Interval(0.97, 0.9, 1.1, 20), 0.98) == "undecided"
