"""Bytes that the server read from and wrote to devices, and the counters of its disk.

`device_*` is the kernel's accounting of the server's processes. Direct writes count exactly. A
write through the page cache counts when it dirties pages, by whole folios: PostgreSQL's log, in
large folios, counts for a multiple of the bytes that reach the device. `disk_*` are the counters of
the device itself: exact, including late writes of the page cache, and including all other activity
on the device. `settled_*` count until the server is at rest after the last round, and so include
the work that the engine deferred.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path

from firn_lab.measures.measure import ROUND_MEASURES, Probe, RoundMeasure
from firn_lab.processes import process_io
from firn_lab.targets.target import Target
from firn_lab.workloads.workload import FigureKind, Outcome

_PROCESS = ("device_read_bytes", "device_written_bytes")
# By figure: the number of its field in the kernel's block statistics, and the factor to the figure
# (a sector has 512 bytes).
_DISK = {
    "disk_reads": (0, 1),
    "disk_read_bytes": (2, 512),
    "disk_writes": (4, 1),
    "disk_written_bytes": (6, 512),
}
FIGURES = {name: FigureKind("B" if name.endswith("bytes") else "") for name in (*_PROCESS, *_DISK)}


def disk_io(directory: Path) -> dict[str, int]:
    """Requests and bytes of the device of a directory; empty if it has no block device."""
    device = os.stat(directory).st_dev
    try:
        fields = Path(f"/sys/dev/block/{os.major(device)}:{os.minor(device)}/stat").read_text()
    except OSError:
        return {}
    numbers = [int(field) for field in fields.split()]
    return {name: numbers[place] * each for name, (place, each) in _DISK.items()}


class DeviceProbe(Probe):
    """Keeps the last counts of each process, so that those of an ended process are not lost."""

    def __init__(self, target: Target) -> None:
        self._target = target
        self._began = self._counts()
        self._last = dict(self._began)
        self._directory = target.data_dir
        self._disk = disk_io(self._directory) if self._directory else {}
        self._told: dict[str, float] = {}

    def _counts(self) -> dict[int, tuple[int, int]]:
        counts = {pid: process_io(pid) for pid in self._target.pids}
        return {pid: count for pid, count in counts.items() if count is not None}

    def _totals(self) -> dict[str, float]:
        self._last.update(self._counts())
        totals = dict.fromkeys(_PROCESS, 0.0)
        for pid, (read, written) in self._last.items():
            read_before, written_before = self._began.get(pid, (0, 0))
            totals["device_read_bytes"] += read - read_before
            totals["device_written_bytes"] += written - written_before
        if self._disk and self._directory is not None:
            now = disk_io(self._directory)
            totals |= {name: count - self._disk[name] for name, count in now.items()}
        return totals

    def sample(self) -> Mapping[str, float]:
        totals = self._totals()
        steps = {name: value - self._told.get(name, 0.0) for name, value in totals.items()}
        self._told.update(totals)
        return steps

    def finish(self, outcome: Outcome) -> Mapping[str, float]:
        totals = self._totals()
        count = outcome.all_transactions
        if count:
            return totals | {f"{n}_per_transaction": v / count for n, v in totals.items()}
        return totals

    def totals(self) -> Mapping[str, float]:
        return self._totals()


@ROUND_MEASURES.register("device")
class Device(RoundMeasure):
    figures = FIGURES | {f"{name}_per_transaction": kind for name, kind in FIGURES.items()}
    settled = FIGURES

    def begin(self, target: Target) -> DeviceProbe:
        return DeviceProbe(target)
