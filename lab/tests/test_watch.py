"""The live view of a run."""

from __future__ import annotations

import io
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console

from firn_lab import cli
from firn_lab.cli.watch import follow
from firn_lab.cli.watch_board import SILENT_SECONDS, Board, render, sparkline
from firn_lab.clock import SystemClock
from firn_lab.store import Reader, Writer
from firn_lab.targets import Budget

STEP = {"done": 1, "steps_total": 8, "seconds_left": 125}
SECOND = {
    "target": "firn", "case": "rw", "round": 0, "second": 3, "tps": 80.0, "qps": 9.0, "errors": 0.0,
    "retries": 4.0, "p95_ms": 2.5, "device_read_bytes": 2048.0,
}  # fmt: skip


def begin(path: Path) -> tuple[Writer, int]:
    writer = Writer(path, SystemClock())
    run = writer.run("made up", ["firn-lab"], "0", {}, Budget(), 3)
    started = {"cases": ["rw"], "targets": ["innodb", "firn"], "reference": "innodb", **STEP}
    writer.event(run, "started", started)
    return writer, run


def screen(board: Board, now: float) -> str:
    out = io.StringIO()
    Console(file=out, width=160).print(render(board, now))
    return out.getvalue()


def round_of(tps: float, status: str = "ok") -> dict[str, Any]:
    return {
        "target": "firn", "case": "rw", "round": 0, "status": status, "message": "gone",
        "headline": "new_orders", "figures": {"tps": 1.0, "new_orders": tps},
    }  # fmt: skip


def test_events_become_a_picture(tmp_path: Path) -> None:
    writer, run = begin(tmp_path / "x.sqlite")
    with Reader(tmp_path / "x.sqlite") as store:
        board = follow(store, Board(store.run()))
        assert board.last_at is not None
        text = screen(board, board.last_at)
        assert "1 of 8" in text and "about 2:05 left" in text and "innodb" in text
        writer.event(run, "phase", {"phase": "measure", "target": "firn", "case": "rw"})
        for tps in (10.0, 40.0, 80.0):
            writer.event(run, "second", {**SECOND, "tps": tps})
        follow(store, board)
        text = screen(board, board.last_at)
        assert "measure firn rw" in text
        assert "▂▅█ 80/s  95 % 2.50 ms  read 2.00 KiB/s  4 retries" in text
        for tps in (90.0, 100.0, 70.0):
            writer.event(run, "round", round_of(tps))
        writer.event(run, "round", round_of(0.0, "failed"))
        ratios = {"firn": [1.25, 1.2, 1.3], "gone": [1.0, 1.0, 1.0]}
        writer.event(run, "block", {"case": "rw", "block": 2, "ratios": ratios})
        writer.event(run, "unsupported", {"message": "shop on pg: MySQL only"})
        writer.event(run, "warning", {"rule": "memory", "message": "differs"})
        follow(store, board)
        text = screen(board, board.last_at)
        assert "90.0 ×1.250 (1.200…1.300)" in text
        assert "rw on firn, block 1: failed: gone" in text and "unfair, memory: differs" in text
        assert "not run: shop on pg: MySQL only" in text
        assert "silent" in screen(board, board.last_at + SILENT_SECONDS + 1)
        writer.end(run, "interrupted", "by hand")
        follow(store, board)
        assert board.status == "interrupted"
        assert "interrupted by hand" in screen(board, board.last_at)
    writer.close()


def test_the_command_ends_with_the_run(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    writer, run = begin(tmp_path / "x.sqlite")
    command = ["watch", "--store", str(tmp_path / "x.sqlite")]
    assert cli.main([*command, "--once"]) == 0
    assert "running" in capsys.readouterr().out
    writer.event(run, "ended", {"status": "ok", "message": ""})
    writer.end(run, "ok")
    writer.close()
    assert cli.main(command) == 0
    assert "made up: ok" in capsys.readouterr().out
    assert cli.main([*command, "7"]) == 1
    assert "no run 7" in capsys.readouterr().err


def test_a_sparkline_begins_at_zero() -> None:
    assert sparkline([0, 4, 8]) == "▁▅█"
    assert sparkline([0, 0]) == "▁▁"
    assert sparkline([]) == ""
