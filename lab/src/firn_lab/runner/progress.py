"""Progress of a run, and the estimated time left."""

from __future__ import annotations

from collections.abc import Mapping

# Assumed time of a load before the first one ends.
LOAD_SECONDS = 20.0


class Progress:
    """Counts steps, which are loads and cases.

    The time left assumes that a case uses up its limit, and a load takes the average of the loads
    so far.
    """

    def __init__(self, loads: int = 0, cases: Mapping[str, float] = {}) -> None:
        """`loads`: number of loads. `cases`: by label of the case, its time limit in seconds."""
        self._loads = loads
        self._loaded: list[float] = []
        self._cases = dict(cases)
        self.done = 0

    @property
    def total(self) -> int:
        return self.done + self._loads + len(self._cases)

    @property
    def loads_left(self) -> float:
        """Expected seconds of the remaining loads."""
        seen = self._loaded
        return self._loads * (sum(seen) / len(seen) if seen else LOAD_SECONDS)

    @property
    def cases_left(self) -> int:
        return len(self._cases)

    @property
    def seconds_left(self) -> float:
        return self.loads_left + sum(self._cases.values())

    def load_over(self, seconds: float | None) -> None:
        """Counts a load as done. `seconds` is None if it failed or was skipped."""
        self.done += 1
        self._loads -= 1
        if seconds is not None:
            self._loaded.append(seconds)

    def case_over(self, label: str) -> None:
        self.done += 1
        del self._cases[label]

    def share(self, seconds: float) -> None:
        """Distributes the seconds that are left evenly among the remaining cases."""
        each = max(0.0, seconds) / max(1, len(self._cases))
        self._cases = dict.fromkeys(self._cases, each)
