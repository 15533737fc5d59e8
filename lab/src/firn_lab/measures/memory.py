"""Resident memory of the server: at the end of the round, and the most of its seconds.

Shared memory of PostgreSQL's processes counts once (proportional set size, where the kernel gives
it).
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from firn_lab.measures.base import ROUND_MEASURES, Probe, RoundMeasure
from firn_lab.targets.base import Target
from firn_lab.workloads.base import FigureKind, Outcome


def resident_bytes(pids: list[int]) -> float:
    """Of all processes together; those that have ended hold nothing."""
    file, field = ("status", "VmRSS:") if len(pids) == 1 else ("smaps_rollup", "Pss:")
    total = 0
    for pid in pids:
        try:
            lines = Path(f"/proc/{pid}/{file}").read_text().splitlines()
        except OSError:
            continue
        total += sum(int(line.split()[1]) * 1024 for line in lines if line.startswith(field))
    return float(total)


class MemoryProbe(Probe):
    def __init__(self, target: Target) -> None:
        self._target = target
        self._peak = 0.0

    def sample(self) -> Mapping[str, float]:
        now = resident_bytes(self._target.pids)
        self._peak = max(self._peak, now)
        return {"resident_bytes": now}

    def finish(self, outcome: Outcome) -> Mapping[str, float]:
        now = self.sample()["resident_bytes"]
        return {"resident_bytes": now, "resident_peak_bytes": self._peak}


@ROUND_MEASURES.register("memory")
class Memory(RoundMeasure):
    figures = {"resident_bytes": FigureKind("B"), "resident_peak_bytes": FigureKind("B")}

    def begin(self, target: Target) -> MemoryProbe:
        return MemoryProbe(target)
