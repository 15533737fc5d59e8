"""How much of a run is done, and how long the rest may take."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

# A load's time before one was seen, and that of a round without a time limit.
UNKNOWN_SECONDS = 20.0
# What a round takes beyond its own seconds: waking the server, checks.
ROUND_EXTRA_SECONDS = 2.0


@dataclass
class Kind:
    """Steps that take about the same time: as long as those so far, before the first one as long as
    `expected`."""

    left: int
    expected: float
    seen: list[float] = field(default_factory=list)

    @property
    def seconds_left(self) -> float:
        return self.left * (sum(self.seen) / len(self.seen) if self.seen else self.expected)


class Progress:
    """Steps are loads, and rounds by case."""

    def __init__(self, loads: int = 0, rounds: Mapping[str, tuple[int, float | None]] = {}) -> None:
        """`rounds`: by case, how many, and the seconds of one; None where there is no limit."""
        self._loads = Kind(loads, UNKNOWN_SECONDS)
        self._rounds = {
            case: Kind(count, UNKNOWN_SECONDS if seconds is None else seconds + ROUND_EXTRA_SECONDS)
            for case, (count, seconds) in rounds.items()
        }
        self.done = 0

    @property
    def total(self) -> int:
        return self.done + sum(kind.left for kind in (self._loads, *self._rounds.values()))

    @property
    def seconds_left(self) -> float:
        return sum(kind.seconds_left for kind in (self._loads, *self._rounds.values()))

    def load_over(self, seconds: float | None) -> None:
        """A load took so long; None: it was not done, and will not be."""
        self._over(self._loads, seconds)

    def round_over(self, case: str, seconds: float | None) -> None:
        """The same of a round."""
        self._over(self._rounds[case], seconds)

    def _over(self, kind: Kind, seconds: float | None) -> None:
        self.done += 1
        kind.left -= 1
        if seconds is not None:
            kind.seen.append(seconds)
