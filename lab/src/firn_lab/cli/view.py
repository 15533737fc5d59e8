"""What a run shows while it works, and the table at its end."""

from __future__ import annotations

import time
from collections.abc import Mapping
from typing import Any

from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn
from rich.table import Table
from rich.text import Text

from firn_lab.cli.common import wide_console
from firn_lab.report.data import Report, Result, collect
from firn_lab.store import Reader


class View:
    """A line for each round and each problem; on a terminal a bar with the time left, too."""

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

    def __enter__(self) -> View:
        self._bar.start()
        return self

    def __exit__(self, *failure: object) -> None:
        self._bar.stop()

    def event(self, kind: str, data: Mapping[str, Any]) -> None:
        """A listener of the runner."""
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
                    f"{data['target']} {data['case']} round {data['round'] + 1}: "
                    f"{data['tps']:,.0f}/s"
                )
            case "round":
                self._round(data)
            case "warning":
                self._print(f"[{data['rule']}] {data['message']}", style="red")
            case "unsupported":
                self._print(f"not run: {data['message']}")
            case "failure":
                self._print(f"{data['target']} is left out: {data['message']}", style="red")

    def _round(self, data: Mapping[str, Any]) -> None:
        figures = data["figures"]
        text = f"round {data['round'] + 1}  {data['case']}  {data['target']}: "
        if data["headline"] in figures:
            text += f"{figures[data['headline']]:,.1f} {data['headline']}"
        if "latency_p95_ms" in figures:
            text += f", 95 % {figures['latency_p95_ms']:.2f} ms"
        if data["status"] == "ok":
            self._print(text)
        else:
            self._print(f"{text} {data['status']}: {data['message']}", style="red")

    def _say(self, text: str) -> None:
        self._bar.update(self._task, description=text, left=self._left())

    def _left(self) -> str:
        seconds = max(0, round(self._ends_at - time.monotonic()))
        return f"about {seconds // 60}:{seconds % 60:02} left"

    def _print(self, text: str, style: str = "") -> None:
        self._console.print(Text(text, style=style), soft_wrap=True)


def summary(store: Reader, run: int) -> None:
    """Medians of each case's headline figure, with the range of the rounds and the ratio to the
    reference; a `?` where nothing can be concluded."""
    report = collect(store, run)
    if not report.targets or not report.cases:
        return
    table = Table("case", *(target.name for target in report.targets), box=None)
    for case in report.cases:
        results = [report.result(case, target) for target in report.targets]
        table.add_row(case.label, *(cell(report, each) for each in results))
    wide_console().print(table)


def cell(report: Report, result: Result | None) -> str:
    """One target's result of a case."""
    value = result.headline if result else None
    if result is None or value is None:
        return "–"
    text = f"{value.median:,.1f} ({value.low:,.1f}…{value.high:,.1f}"
    text += ")" if value.count == report.run.rounds else f", {value.count} rounds)"
    against = report.against(result)
    other = against.headline if against else None
    if other is None or other.median == 0:
        return text
    doubt = " ?" if report.doubtful(result, result.case.headline) else ""
    return f"{text} ×{value.median / other.median:.2f}{doubt}"
