"""Processor time of the server: in total and per transaction."""

from __future__ import annotations

from collections.abc import Mapping

from firn_lab.measures.measure import ROUND_MEASURES, Probe, RoundMeasure
from firn_lab.processes import processor_seconds
from firn_lab.targets.target import Target
from firn_lab.workloads.workload import FigureKind, Outcome


class CpuProbe(Probe):
    """Accumulates processor time across restarts of the server within a round."""

    def __init__(self, target: Target) -> None:
        self._target = target
        self._pid = target.pid
        self._last = processor_seconds(target.pids)
        self._used = 0.0

    def _advance(self) -> float:
        pids = self._target.pids
        if not pids:
            return 0.0
        now = processor_seconds(pids)
        if self._target.pid != self._pid:
            self._pid, self._last = self._target.pid, 0.0
        # While a PostgreSQL child ends, neither its own count nor its parent's has its time, so
        # that the sum falls for a moment.
        step = max(0.0, now - self._last)
        self._last = max(self._last, now)
        self._used += step
        return step

    def sample(self) -> Mapping[str, float]:
        return {"cpu_seconds": self._advance()}

    def finish(self, outcome: Outcome) -> Mapping[str, float]:
        self._advance()
        figures = {"cpu_seconds": self._used}
        if outcome.all_transactions:
            figures["cpu_us_per_transaction"] = self._used / outcome.all_transactions * 1e6
        return figures

    def totals(self) -> Mapping[str, float]:
        self._advance()
        return {"cpu_us": self._used * 1e6}


@ROUND_MEASURES.register("cpu")
class Cpu(RoundMeasure):
    figures = {
        "cpu_seconds": FigureKind("s"),
        "cpu_us_per_transaction": FigureKind("µs"),
    }
    settled = {"cpu_us": FigureKind("µs")}

    def begin(self, target: Target) -> CpuProbe:
        return CpuProbe(target)
