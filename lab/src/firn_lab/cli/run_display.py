"""The display of a running run, and the table at its end."""

from __future__ import annotations

import time
from collections.abc import Mapping
from typing import Any

from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn
from rich.table import Table
from rich.text import Text

from firn_lab.cli.common import wide_console
from firn_lab.report.conclusions import conclusions, ratio_text
from firn_lab.report.report_data import Report, Result, collect
from firn_lab.store import Reader


class RunDisplay:
    """Prints a line per block and per problem; a terminal also gets a bar with the time left."""

    def __init__(self) -> None:
        self._console = Console(highlight=False)
        self._bar = Progress(
            TextColumn("{task.description}"),
            BarColumn(),
            TextColumn("{task.completed}/{task.total}  {task.fields[left]}"),
            console=self._console,
            transient=True,
            disable=not self._console.is_terminal,
        )
        self._task = self._bar.add_task("starting", total=None, left="")
        self._ends_at = 0.0

    def __enter__(self) -> RunDisplay:
        self._bar.start()
        return self

    def __exit__(self, *failure: object) -> None:
        self._bar.stop()

    def event(self, kind: str, data: Mapping[str, Any]) -> None:
        """Listener of the runner's events."""
        match kind:
            case "started" | "step":
                self._ends_at = time.monotonic() + data["seconds_left"]
                total, done = data["steps_total"], data.get("done", 0)
                self._bar.update(self._task, total=total, completed=done, left=self._left())
            case "phase":
                words = [data["phase"], data["target"], data.get("case", "")]
                self._say(" ".join(filter(None, words)))
                if not self._console.is_terminal and data["phase"] in ("start", "load"):
                    self._print(f"{data['phase']} {data['target']} {data.get('dataset', '')}")
            case "second":
                self._say(
                    f"{data['target']} {data['case']} block {data['round'] + 1}: "
                    f"{data['tps']:,.0f}/s"
                )
            case "round":
                self._round(data)
            case "block":
                self._block(data)
            case "case":
                known = f"{'' if data['concluded'] else 'not '}concluded at ±{data['within']:.1%}"
                self._print(f"{data['case']}: {known} after {data['blocks']} blocks")
            case "warning":
                self._print(f"[{data['rule']}] {data['message']}", style="red")
            case "unsupported":
                self._print(f"not run: {data['message']}")
            case "failure":
                self._print(f"{data['target']} is left out: {data['message']}", style="red")

    def _round(self, data: Mapping[str, Any]) -> None:
        """Prints a failed round. `_block` prints the successful ones."""
        if data["status"] != "ok":
            text = f"block {data['round'] + 1}  {data['case']}  {data['target']}: "
            self._print(f"{text} {data['status']}: {data['message']}", style="red")

    def _block(self, data: Mapping[str, Any]) -> None:
        found = (
            f"{name} ×{value:.3f} ({low:.3f}…{high:.3f})"
            for name, (value, low, high) in data["ratios"].items()
        )
        self._print(f"block {data['block'] + 1}  {data['case']}  {', '.join(found)}".rstrip())

    def _say(self, text: str) -> None:
        self._bar.update(self._task, description=text, left=self._left())

    def _left(self) -> str:
        seconds = max(0, round(self._ends_at - time.monotonic()))
        return f"about {seconds // 60}:{seconds % 60:02} left"

    def _print(self, text: str, style: str = "") -> None:
        self._console.print(Text(text, style=style), soft_wrap=True)


def summary(store: Reader, run: int) -> None:
    """Prints each case's headline figure, with its ratio to the reference and an interval."""
    report = collect(store, run)
    if not report.targets or not report.cases:
        return
    table = Table("case", *(target.name for target in report.targets), "", box=None)
    for case in report.cases:
        results = [report.result(case, target) for target in report.targets]
        known = [each for each in conclusions(report) if each.result.case.id == case.id]
        within = f"at ±{report.within:.1%}"
        words = f"concluded {within}" if all(e.concluded for e in known) else f"not {within}"
        table.add_row(case.label, *(cell(report, each) for each in results), words * bool(known))
    wide_console().print(table)


def cell(report: Report, result: Result | None) -> str:
    """The headline figure of a case on one target as text, with its ratio to the reference."""
    value = result.headline if result else None
    if result is None or value is None:
        return "–"
    ratio = report.ratio(result, result.case.headline)
    return f"{value.value:,.1f}" + (f" {ratio_text(ratio)}" if ratio else "")
