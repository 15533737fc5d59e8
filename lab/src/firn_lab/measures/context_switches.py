"""Context switches of the server for a transaction, in all and those that were forced upon it.

The kernel counts them by thread, and forgets those of a thread that ends: all threads are looked at
at first, each second, and at the end, and the last count of each that is gone is kept.
Threads of connections outlive the round: a private MariaDB keeps them for the next connection.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path

from firn_lab.measures.base import ROUND_MEASURES, Probe, RoundMeasure
from firn_lab.targets.base import Target
from firn_lab.workloads.base import FigureKind, Outcome

# Of a thread: those that it asked for by waiting, and those that others caused.
Counts = tuple[int, int]
_FIELDS = ("voluntary_ctxt_switches:", "nonvoluntary_ctxt_switches:")


def thread_switches(pids: list[int]) -> Iterator[tuple[int, Counts]]:
    """By number of the thread, of all threads of the processes."""
    for pid in pids:
        try:
            tasks = list(Path(f"/proc/{pid}/task").iterdir())
        except OSError:
            continue  # It has ended.
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
        """Adds what each thread has done since the last look. A count below the last one is that of
        a new thread with the number of one that ended."""
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
