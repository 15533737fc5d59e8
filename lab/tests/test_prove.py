"""Proofs: raw data grows with each run, and the results are computed from it."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from simulated_machine import MACHINES, blocks

from firn_lab import cli
from firn_lab.errors import LabError
from firn_lab.intervals import Interval
from firn_lab.proof.record import FIGURES, HEAD, ProofRun, read
from firn_lab.proof.summary import draw, found, page, passed, sound

BLOCKS = 160  # As many blocks as a run of four minutes has.


def written(path: Path, runs: int, truth: float = 1.0, machine: str = "calm") -> Path:
    """A file as `append` writes it, with 24 blocks per run."""
    lines = [",".join(HEAD)]
    for run in range(runs):
        drawn = blocks(MACHINES[machine], BLOCKS, np.random.default_rng(run), truth)
        for number, (second, first) in enumerate(drawn):
            for target, tps in (("x@1", first), ("x@2", second)):
                figures = [tps, *[1.0] * (len(FIGURES) - 1)]
                words = [run, "2026", truth, "case", number, target, *figures]
                lines.append(",".join(map(str, words)))
    path.write_text("\n".join(lines) + "\n")
    return path


def test_servers_beside_themselves_are_the_same(tmp_path: Path) -> None:
    runs = read(written(tmp_path / "same.csv", 20))
    assert [run.number for run in runs] == list(range(20))
    assert all(run.ratio.count == BLOCKS for run in runs)
    assert passed(runs) and sum(map(sound, runs)) >= 17
    text = page("same", "about", runs, "same.png")
    assert "**passed**" in text and text.count("\n| ") == 22
    draw("same", runs, tmp_path / "same.png")
    assert (tmp_path / "same.png").read_bytes()[:4] == b"\x89PNG"


def test_a_slower_server_is_found(tmp_path: Path) -> None:
    runs = read(written(tmp_path / "slower.csv", 5, 1 / 1.05))
    assert passed(runs) and all(map(found, runs))
    assert "5 of 5 runs find the difference" in page("slower", "about", runs, "x.png")


def test_a_proof_can_fail() -> None:
    wide = ProofRun(0, 1.0, Interval(1.0, 0.96, 1.04, 30))
    few = ProofRun(0, 1.0, Interval(1.0, 0.99, 1.01, 19))
    off = ProofRun(0, 1.0, Interval(1.03, 1.01, 1.05, 30))
    good = ProofRun(0, 1.0, Interval(1.0, 0.99, 1.01, 20))
    assert [sound(run) for run in (wide, few, off, good)] == [False, False, False, True]
    assert passed([good] * 17 + [off] * 3) and not passed([good] * 16 + [off] * 4)
    assert not passed([])
    unseen = ProofRun(0, 0.95, Interval(0.97, 0.93, 1.01, 30))
    seen = ProofRun(0, 0.95, Interval(0.97, 0.94, 0.99, 30))
    assert passed([seen, seen]) and not passed([seen, unseen])


def test_what_is_there_is_not_done_again(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    written(tmp_path / "same.csv", 20)
    monkeypatch.setattr("firn_lab.cli.prove.measure", lambda *rest: pytest.fail("it measures"))
    words = ["prove", "same", "--runs", "20", "--out", str(tmp_path)]
    assert cli.main([*words, "--store", str(tmp_path / "x.sqlite")]) == 0
    assert cli.main(["prove", "slower", "--out", str(tmp_path)]) == 1
    assert "--before PLUGIN --after PLUGIN" in capsys.readouterr().err
    (tmp_path / "other.csv").write_text("a,b\n1,2\n")
    with pytest.raises(LabError, match="not of this command"):
        read(tmp_path / "other.csv")


def test_a_run_is_measured_and_added(tmp_path: Path, template: Path) -> None:
    words = ["prove", "same", "--runs", "1", "--minutes", "0.02", "--memory", "32",
             "--case", "oltp_point_select:tables=1,rows=100,threads=1,seconds=1,warm_seconds=0",
             "--out", str(tmp_path), "--store", str(tmp_path / "x.sqlite"),
             "--dir", str(tmp_path / "data")]  # fmt: skip
    assert cli.main(words) == 1, "three blocks prove nothing"
    (run,) = read(tmp_path / "same.csv")
    assert run.ratio.count == 3
    assert "**not passed**" in (tmp_path / "same.md").read_text()
    assert (tmp_path / "same.png").is_file()
