"""The picture of `watch`, folded from the events of a run."""

from __future__ import annotations

import collections
from dataclasses import dataclass, field
from typing import Any

from rich.console import Group, RenderableType
from rich.progress_bar import ProgressBar
from rich.table import Table
from rich.text import Text

from firn_lab.intervals import Interval, typical
from firn_lab.report.units import bytes_text
from firn_lab.store.rows import Event, Run

SECONDS_SHOWN = 60
LINES_SHOWN = 8
# After this many seconds without an event the lab is presumed dead.
SILENT_SECONDS = 120
BARS = "▁▂▃▄▅▆▇█"


@dataclass
class Board:
    """The displayed state of a run. `apply` must receive the events in order."""

    run: Run
    status: str = "running"
    message: str = ""
    last_event: int = 0
    last_at: float | None = None
    phase: str = "starting"
    steps: tuple[int, int] = (0, 0)
    ends_at: float | None = None
    seconds: collections.deque[float] = field(
        default_factory=lambda: collections.deque(maxlen=SECONDS_SHOWN)
    )
    latest: dict[str, Any] = field(default_factory=dict)
    targets: list[str] = field(default_factory=list)
    # By case, then by target: the headline figures of the successful rounds.
    results: dict[str, dict[str, list[float]]] = field(default_factory=dict)
    # By case, then by target: the ratio to the reference so far, with its interval.
    ratios: dict[str, dict[str, tuple[float, float, float]]] = field(default_factory=dict)
    lines: list[str] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)

    def apply(self, event: Event) -> None:
        self.last_event, self.last_at = event.id, event.at
        data = event.data
        match event.kind:
            case "started":
                self.targets = list(data["targets"])
                self.results = {case: {} for case in data["cases"]}
                self._progress(event.at, data)
            case "step":
                self._progress(event.at, data)
            case "phase":
                words = [data["phase"], data["target"], data.get("case") or data.get("dataset")]
                self.phase = " ".join(filter(None, words))
                self.seconds.clear()
                self.latest = {}
            case "progress":
                self.latest = {"done": data["done"]}
            case "second":
                self.seconds.append(data["tps"])
                self.latest = dict(data)
            case "round":
                self._round(data)
            case "block":
                self.ratios[data["case"]] = data["ratios"]
            case "warning":
                self.lines.append(f"unfair, {data['rule']}: {data['message']}")
            case "unsupported":
                self.notes.append(f"not run: {data['message']}")
            case "failure":
                self.lines.append(f"{data['target']} is left out: {data['message']}")
            case "ended":
                self.status, self.message = data["status"], data["message"]

    def _progress(self, at: float, data: Any) -> None:
        self.steps = (data.get("done", 0), data["steps_total"])
        self.ends_at = at + data["seconds_left"]

    def _round(self, data: Any) -> None:
        if data["status"] != "ok":
            text = f"{data['case']} on {data['target']}, block {data['round'] + 1}"
            self.lines.append(f"{text}: {data['status']}: {data['message']}")
        elif data["headline"] in data["figures"]:
            of_case = self.results.setdefault(data["case"], {})
            of_case.setdefault(data["target"], []).append(data["figures"][data["headline"]])

    def left(self, now: float) -> str:
        """The estimated time until the run ends, as text."""
        if self.status != "running" or self.ends_at is None:
            return ""
        if self.last_at is not None and now - self.last_at > SILENT_SECONDS:
            return f"silent for {now - self.last_at:.0f} s: the lab may be gone"
        seconds = max(0, round(self.ends_at - now))
        return f"about {seconds // 60}:{seconds % 60:02} left"


def sparkline(values: collections.abc.Iterable[float]) -> str:
    """Text bars on a scale from 0 to the largest value."""
    numbers = list(values)
    top = max(numbers, default=0.0)
    if top <= 0:
        return BARS[0] * len(numbers)
    return "".join(BARS[min(7, int(value / top * 8))] for value in numbers)


def render(board: Board, now: float) -> RenderableType:
    """The picture at time `now`, in seconds since the epoch."""
    run, (done, total) = board.run, board.steps
    head = Text(f"run {run.id} {run.title}: {board.status} {board.message}".rstrip(), style="bold")
    parts: list[RenderableType] = [head]
    bar = Table.grid(padding=(0, 1))
    bar.add_row(
        ProgressBar(total=max(1, total), completed=done, width=40),
        f"{done} of {total}",
        board.left(now),
    )
    parts.append(bar)
    if board.status == "running":
        parts.append(Text(board.phase))
        parts.append(Text(_now(board)))
    parts.append(_results(board))
    parts += [Text(line, style="red") for line in board.lines[-LINES_SHOWN:]]
    parts += [Text(line, style="dim") for line in board.notes[-LINES_SHOWN:]]
    return Group(*parts)


def _now(board: Board) -> str:
    latest = board.latest
    if "done" in latest:
        return f"{latest['done']:.0%}"
    if "tps" not in latest:
        return ""
    words = [f"{sparkline(board.seconds)} {latest['tps']:,.0f}/s"]
    if latest.get("p95_ms") is not None:
        words.append(f"95 % {latest['p95_ms']:.2f} ms")
    for name, text in (("device_read_bytes", "read"), ("device_written_bytes", "written")):
        if name in latest:
            words.append(f"{text} {bytes_text(latest[name])}/s")
    words += [f"{latest[name]:,.0f} {name}" for name in ("errors", "retries") if latest.get(name)]
    return "  ".join(words)


def _cell(value: Interval) -> str:
    return f"{value.value:,.1f}"


def _results(board: Board) -> Table:
    """Table of the medians so far, and the ratios to the reference."""
    table = Table("case", *board.targets, box=None)
    for case, by_target in board.results.items():
        cells = []
        for target in board.targets:
            value = typical(by_target.get(target, []))
            text = "" if value is None else _cell(value)
            if target in board.ratios.get(case, {}):
                ratio, low, high = board.ratios[case][target]
                text += f" ×{ratio:.3f} ({low:.3f}…{high:.3f})"
            cells.append(text)
        table.add_row(case, *cells)
    return table
