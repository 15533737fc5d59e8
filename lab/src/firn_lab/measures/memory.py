"""Resident memory of the server: at the end of the round, and the largest sample of its seconds.

Memory that PostgreSQL's processes share counts once. The exact value (proportional set size) is
taken only at the end, because the kernel walks all page tables for it. Each second, the largest
shared part of any process approximates the shared memory.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from firn_lab.measures.measure import ROUND_MEASURES, Probe, RoundMeasure
from firn_lab.targets.target import Target
from firn_lab.workloads.workload import FigureKind, Outcome


def _fields(pid: int, file: str) -> dict[str, int]:
    """Byte values by name from a file in /proc/PID; empty for a process that has ended."""
    try:
        lines = Path(f"/proc/{pid}/{file}").read_text().splitlines()
    except OSError:
        return {}
    words = [line.split() for line in lines]
    return {line[0].rstrip(":"): int(line[1]) * 1024 for line in words if line[-1:] == ["kB"]}


def resident_bytes(pids: list[int]) -> float:
    """Resident bytes of all processes together, estimated cheaply."""
    each = [_fields(pid, "status") for pid in pids]
    shared = max((fields.get("RssShmem", 0) for fields in each), default=0)
    code = max((fields.get("RssFile", 0) for fields in each), default=0)
    return float(shared + code + sum(fields.get("RssAnon", 0) for fields in each))


def proportional_bytes(pids: list[int]) -> float:
    """Resident bytes of all processes together, exact; the kernel walks their page tables."""
    if len(pids) == 1:
        return resident_bytes(pids)
    return float(sum(_fields(pid, "smaps_rollup").get("Pss", 0) for pid in pids))


class MemoryProbe(Probe):
    def __init__(self, target: Target) -> None:
        self._target = target
        self._peak = 0.0

    def sample(self) -> Mapping[str, float]:
        now = resident_bytes(self._target.pids)
        self._peak = max(self._peak, now)
        return {"resident_bytes": now}

    def finish(self, outcome: Outcome) -> Mapping[str, float]:
        now = proportional_bytes(self._target.pids)
        return {"resident_bytes": now, "resident_peak_bytes": max(now, self._peak)}


@ROUND_MEASURES.register("memory")
class Memory(RoundMeasure):
    figures = {"resident_bytes": FigureKind("B"), "resident_peak_bytes": FigureKind("B")}

    def begin(self, target: Target) -> MemoryProbe:
        return MemoryProbe(target)
