"""A cold start: the time from the start of a server until it is nearly as fast as it was.

Each round lets sysbench's point selects warm the server up, measures their throughput in short
windows, stops the server and starts it, and has them run in such windows until two of them together
reach `percent` of the median before. The clients' own start does not count.
"""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from typing import ClassVar

from firn_lab.clock import Clock
from firn_lab.errors import LabError
from firn_lab.targets.target import Target
from firn_lab.workloads.sql_session import number_option
from firn_lab.workloads.sysbench.gate import Gated
from firn_lab.workloads.sysbench.workload import DEFAULTS, SCRIPTS, Sysbench
from firn_lab.workloads.workload import (
    WORKLOADS,
    FigureKind,
    Outcome,
    RoundPart,
    Second,
    Sink,
)

PROGRAM = "oltp_point_select"
WINDOW_SECONDS = 0.25
# A window alone may be fast by chance.
WINDOWS = 2
# Windows before the stop, at least. Their median leaves out moments in which the machine was fast
# or slow.
WARM_WINDOWS = 12


def is_reached(rates: Sequence[float], wanted: float) -> bool:
    """Whether the mean of the last windows is the rate that is wanted."""
    return len(rates) >= WINDOWS and sum(rates[-WINDOWS:]) / WINDOWS >= wanted


@WORKLOADS.register("restart")
class Restart(Sysbench):
    """The rows are those of sysbench's other scripts, and shared with them."""

    summary = "time from the start of a server until point selects are nearly as fast as before"
    script = SCRIPTS[PROGRAM]
    program = PROGRAM
    options: ClassVar[dict[str, str]] = {
        **{key: DEFAULTS[key] for key in SCRIPTS[PROGRAM].options},
        "percent": "90",
        "limit": "120",
    }
    figures = {
        "warm_up_seconds": FigureKind("s"),
        "start_seconds": FigureKind("s"),
        "warm_rate": FigureKind("1/s", "higher"),
        "cold_rate": FigureKind("1/s", "higher"),
    }
    writes = False
    timed = False
    headline = "warm_up_seconds"
    counts_transactions = False

    def supports(self, target: Target) -> str:
        if target.data_dir is None:
            return "only servers that the lab may restart"
        return super().supports(target)

    def measure(self, target: Target, clock: Clock, sink: Sink, number: int) -> Outcome:
        share = number_option(self, "percent", 1, 100) / 100
        limit = number_option(self, "limit", 1, 7200)
        try:
            clients = self._clients[target.name] = self._connect(target, 2 * number)
            lead = clients.round(0.0, max(WINDOW_SECONDS, self.params.warm_seconds), _Quiet())
            count = max(WARM_WINDOWS, round(self.params.seconds / WINDOW_SECONDS))
            before = [_window(clients) for _ in range(count)]
            warm_rate = statistics.median(map(_rate, before))
            self.leave(target)
            target.stop()
            began = clock.monotonic()
            target.start()
            start = clock.monotonic() - began
            sink.progress(0.5)
            clients = self._clients[target.name] = self._connect(target, 2 * number + 1)
            after: list[Outcome] = []
            cold = 0.0
            while not is_reached([_rate(each) for each in after], share * warm_rate):
                if cold > limit:
                    raise LabError(
                        f"{target.name} had {_rate(after[-1]):,.0f} selects a second {limit:g} s "
                        f"after its start, {warm_rate:,.0f} before the stop"
                    )
                after.append(_window(clients))
                cold += after[-1].seconds
        finally:
            self.leave(target)
        sink.progress(1.0)
        transactions = sum(each.all_transactions for each in (lead, *before, *after))
        return Outcome(
            transactions,
            transactions,
            start + cold,
            parts=(
                RoundPart("start", 1, start),
                RoundPart("cold", sum(each.transactions for each in after), cold),
            ),
            figures={
                "warm_up_seconds": start + cold,
                "start_seconds": start,
                "warm_rate": warm_rate,
                "cold_rate": _rate(after[0]),
            },
        )


def _window(clients: Gated) -> Outcome:
    return clients.round(0.0, WINDOW_SECONDS, _Quiet())


def _rate(window: Outcome) -> float:
    return window.transactions / window.seconds


class _Quiet:
    """A sink that ignores all reports."""

    def second(self, second: Second) -> None: ...

    def measured(self) -> None: ...

    def progress(self, done: float) -> None: ...
