"""Context switches of the server per transaction: all, and the involuntary ones.

The kernel counts per thread and drops the counts of a thread that ends. The probe therefore reads
all threads at the beginning, each second and at the end, and keeps the last counts of ended
threads. Threads of connections outlive the round, because a private MariaDB keeps them in its
thread cache.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path

from firn_lab.measures.measure import ROUND_MEASURES, Probe, RoundMeasure
from firn_lab.targets.target import Target
from firn_lab.workloads.workload import FigureKind, Outcome

# Counts of a thread: voluntary switches (it waited) and involuntary ones (it was preempted).
Counts = tuple[int, int]
_FIELDS = ("voluntary_ctxt_switches:", "nonvoluntary_ctxt_switches:")


def thread_switches(pids: list[int]) -> Iterator[tuple[int, Counts]]:
    """Counts of all threads of the processes, by thread id."""
    for pid in pids:
        try:
            tasks = list(Path(f"/proc/{pid}/task").iterdir())
        except OSError:
            continue  # The process has ended.
        for task in tasks:
            try:
                lines = (task / "status").read_text().splitlines()[-2:]
                one, other = (line.split() for line in lines)
            except (OSError, ValueError):
                continue
            if (one[0], other[0]) == _FIELDS:
                yield int(task.name), (int(one[1]), int(other[1]))


class SwitchProbe(Probe):
    def __init__(self, target: Target) -> None:
        self._target = target
        self._last: dict[int, Counts] = {}
        self._used = (0, 0)
        self._look(first=True)
        self._told = self._used

    def _look(self, first: bool = False) -> None:
        """Adds the switches since the last look.

        A count below the last one belongs to a new thread that reuses the id of an ended thread.
        """
        voluntary, forced = self._used
        for thread, now in thread_switches(self._target.pids):
            before = self._last.get(thread, now if first else (0, 0))
            if now[0] < before[0] or now[1] < before[1]:
                before = (0, 0)
            voluntary += now[0] - before[0]
            forced += now[1] - before[1]
            self._last[thread] = now
        self._used = (voluntary, forced)

    def sample(self) -> Mapping[str, float]:
        self._look()
        step = sum(self._used) - sum(self._told)
        self._told = self._used
        return {"switches": step}

    def finish(self, outcome: Outcome) -> Mapping[str, float]:
        self._look()
        count = outcome.all_transactions
        figures = {"switches": float(sum(self._used))}
        if count:
            figures["switches_per_transaction"] = sum(self._used) / count
            figures["forced_switches_per_transaction"] = self._used[1] / count
        return figures


@ROUND_MEASURES.register("switches")
class Switches(RoundMeasure):
    figures = {
        "switches": FigureKind(""),
        "switches_per_transaction": FigureKind(""),
        "forced_switches_per_transaction": FigureKind(""),
    }

    def begin(self, target: Target) -> SwitchProbe:
        return SwitchProbe(target)
