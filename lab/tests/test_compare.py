"""Two runs against each other."""

from __future__ import annotations

from pathlib import Path

import made_up
import pytest

from firn_lab import cli
from firn_lab.report.comparison import verdict
from firn_lab.store import Spread


def compare(tmp_path: Path, *more: str) -> int:
    return cli.main(["compare", "1", "2", "--store", str(tmp_path / "x.sqlite"), *more])


def test_a_regression_is_found(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    made_up.fill(tmp_path / "x.sqlite")
    made_up.fill(tmp_path / "x.sqlite", speed={**made_up.SPEED, "firn": 100.0})
    assert compare(tmp_path) == 1
    lines = capsys.readouterr().out.splitlines()
    (line,) = [line for line in lines if "threads=8" in line and " tps " in line]
    assert "firn" in line and "×0.667" in line and line.rstrip().endswith("worse")
    # Fewer seconds are better.
    (line,) = [line for line in lines if "list threads=1" in line]
    assert line.rstrip().endswith("better")
    assert not any("innodb" in line for line in lines)


def test_noise_is_no_regression(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    made_up.fill(tmp_path / "x.sqlite", speed={"firn": 150.0}, jitter=0.3)
    made_up.fill(tmp_path / "x.sqlite", speed={"firn": 120.0}, jitter=0.3)
    assert compare(tmp_path) == 0
    out = capsys.readouterr().out
    assert "unclear" in out and "0 worse" in out


def test_the_same_again(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    made_up.fill(tmp_path / "x.sqlite")
    made_up.fill(tmp_path / "y.sqlite")
    command = ["compare", f"{tmp_path}/x.sqlite:1", f"{tmp_path}/y.sqlite:last"]
    assert cli.main(command) == 0
    assert "0 worse, 0 better, 0 unclear" in capsys.readouterr().out


def test_nothing_in_common(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    made_up.fill(tmp_path / "x.sqlite", speed={"firn": 150.0, "innodb": 100.0})
    made_up.fill(tmp_path / "x.sqlite", speed={"firn": 150.0})
    assert compare(tmp_path) == 0
    out = capsys.readouterr().out
    assert "only in run 1, or failed since: rw threads=2 rows=5 on innodb" in out


@pytest.mark.parametrize(
    ("after", "better", "expected"),
    [
        (Spread(104, 104, 104, 3), "higher", "same"),
        (Spread(90, 89, 91, 3), "higher", "worse"),
        (Spread(90, 89, 91, 3), "lower", "better"),
        (Spread(110, 85, 120, 3), "lower", "unclear"),
    ],
)
def test_verdicts(after: Spread, better: str, expected: str) -> None:
    assert verdict(Spread(100, 99, 101, 3), after, better, 0.05) == expected
