"""How much of a run is done, and how long the rest may take."""

from __future__ import annotations

from collections.abc import Mapping

# A load's time before one was seen.
LOAD_SECONDS = 20.0


class Progress:
    """Steps are loads and cases. A case takes its time at most, a load what loads have taken."""

    def __init__(self, loads: int = 0, cases: Mapping[str, float] = {}) -> None:
        """`cases`: the most that the blocks of each may take."""
        self._loads = loads
        self._loaded: list[float] = []
        self._cases = dict(cases)
        self.done = 0

    @property
    def total(self) -> int:
        return self.done + self._loads + len(self._cases)

    @property
    def loads_left(self) -> float:
        """Seconds."""
        seen = self._loaded
        return self._loads * (sum(seen) / len(seen) if seen else LOAD_SECONDS)

    @property
    def cases_left(self) -> int:
        return len(self._cases)

    @property
    def seconds_left(self) -> float:
        return self.loads_left + sum(self._cases.values())

    def load_over(self, seconds: float | None) -> None:
        """A load took so long; None: it was not done, and will not be."""
        self.done += 1
        self._loads -= 1
        if seconds is not None:
            self._loaded.append(seconds)

    def case_over(self, label: str) -> None:
        self.done += 1
        del self._cases[label]

    def share(self, seconds: float) -> None:
        """So much is left for all cases together."""
        each = max(0.0, seconds) / max(1, len(self._cases))
        self._cases = dict.fromkeys(self._cases, each)
