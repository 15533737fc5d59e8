"""Comparisons of two runs."""

from __future__ import annotations

from pathlib import Path

import fake_stores
import pytest

from firn_lab import cli
from firn_lab.clock import SystemClock
from firn_lab.intervals import Interval
from firn_lab.report.comparison import changes, verdict
from firn_lab.report.report_data import collect
from firn_lab.store import Reader, Writer
from firn_lab.workloads.workload import FigureKind


def compare(tmp_path: Path, *more: str) -> int:
    return cli.main(["compare", "1", "2", "--store", str(tmp_path / "x.sqlite"), *more])


def test_a_regression_is_found(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    fake_stores.fill(tmp_path / "x.sqlite")
    fake_stores.fill(tmp_path / "x.sqlite", speed={**fake_stores.SPEED, "firn": 100.0})
    assert compare(tmp_path) == 1
    lines = capsys.readouterr().out.splitlines()
    (line,) = [line for line in lines if "threads=8" in line and " tps " in line]
    assert "firn" in line and "×0.667" in line and line.rstrip().endswith("worse")
    # Two rounds are too few for a verdict.
    (line,) = [line for line in lines if "list threads=1" in line]
    assert line.rstrip().endswith("unclear")
    assert not any("innodb" in line for line in lines)


def test_noise_is_no_regression(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    fake_stores.fill(tmp_path / "x.sqlite", speed={"firn": 150.0}, jitter=0.3)
    fake_stores.fill(tmp_path / "x.sqlite", speed={"firn": 120.0}, jitter=0.3)
    assert compare(tmp_path) == 0
    out = capsys.readouterr().out
    assert "unclear" in out and "0 worse" in out


def test_the_same_again(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    fake_stores.fill(tmp_path / "x.sqlite")
    fake_stores.fill(tmp_path / "y.sqlite")
    command = ["compare", f"{tmp_path}/x.sqlite:1", f"{tmp_path}/y.sqlite:last"]
    assert cli.main(command) == 0
    assert "0 worse, 0 better, 0 unclear" in capsys.readouterr().out


def test_nothing_in_common(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    fake_stores.fill(tmp_path / "x.sqlite", speed={"firn": 150.0, "innodb": 100.0})
    fake_stores.fill(tmp_path / "x.sqlite", speed={"firn": 150.0})
    assert compare(tmp_path) == 0
    out = capsys.readouterr().out
    assert "only in run 1, or failed since: rw threads=2 rows=5 on innodb" in out


def test_what_was_taken_once_is_no_regression(tmp_path: Path) -> None:
    """Sizes in bytes are exact; the time of one load is not."""
    path = tmp_path / "x.sqlite"
    for size in (100.0, 200.0):
        run = fake_stores.fill(path, speed={"firn": 150.0}, end="")
        writer = Writer(path, SystemClock())
        figures = {"data_bytes": (size, fake_stores.BYTES), "load_seconds": (size, FigureKind("s"))}
        writer.state(run, run, "once", "load", figures)
        writer.close()
    with Reader(path) as store:
        found = changes(collect(store, 1), collect(store, 2), 0.05)
    once = {each.figure: each.verdict for each in found if each.case == "once"}
    assert once == {"data_bytes, load": "worse", "load_seconds, load": "single"}


@pytest.mark.parametrize(("workload", "code"), [("oltp_insert", 0), ("oltp_update_index", 1)])
def test_more_rows_are_no_regression(tmp_path: Path, workload: str, code: int) -> None:
    """The second run inserted four times as many rows, so its sizes cannot be compared."""
    path = tmp_path / "x.sqlite"
    for speed in (200.0, 800.0):
        run = fake_stores.fill(path, speed={"firn": 150.0}, end="")
        fake_stores.grow(path, run, workload, {"firn": speed})
    with Reader(path) as store:
        found = changes(collect(store, 1), collect(store, 2), 0.05)
    sizes = {each.figure: each.verdict for each in found if each.case == "more"}
    assert sizes == {
        "data_bytes, load": "same",
        "data_bytes, rest": "worse" if code else "unclear",
    }
    assert compare(tmp_path) == code


def test_settled_figures_stand_for_those_of_the_round(tmp_path: Path) -> None:
    """An engine gains nothing by deferring work until after the round."""
    path = tmp_path / "x.sqlite"
    for settled in (50e3, 90e3):
        run = fake_stores.fill(path, speed={"firn": 150.0}, end="")
        fake_stores.grow(path, run, "oltp_update_index", {"firn": 100.0}, settled=settled)
    with Reader(path) as store:
        found = changes(collect(store, 1), collect(store, 2), 0.05)
    written = {each.figure: each.verdict for each in found if "written" in each.figure
               and each.case == "oltp_update_index"}  # fmt: skip
    # The settled figure replaces the one without deferred work. It is measured once, so it has no
    # interval and cannot be unclear.
    assert written == {"settled_device_written_bytes_per_transaction": "worse"}


@pytest.mark.parametrize(
    ("after", "better", "expected"),
    [
        (Interval(104, 104, 104, 3), "higher", "same"),
        (Interval(90, 89, 91, 3), "higher", "worse"),
        (Interval(90, 89, 91, 3), "lower", "better"),
        (Interval(110, 85, 120, 3), "lower", "unclear"),
        (Interval(50, 49, 51, 2), "higher", "unclear"),
    ],
)
def test_verdicts(after: Interval, better: str, expected: str) -> None:
    assert verdict(Interval(100, 99, 101, 3), after, better, 0.05) == expected
