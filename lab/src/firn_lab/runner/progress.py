"""How much of a run is done, and how long the rest may take."""

from __future__ import annotations

from dataclasses import dataclass, field

# A load's time before one was seen.
LOAD_SECONDS = 20.0
# What a round takes beyond its own seconds: waking the server, checks.
ROUND_EXTRA_SECONDS = 2.0


@dataclass
class Progress:
    """Steps are loads and rounds. Rounds left are known by their seconds; loads by those so far."""

    loads_left: int
    round_seconds_left: list[float] = field(default_factory=list)
    done: int = 0
    load_seconds: list[float] = field(default_factory=list)

    @property
    def total(self) -> int:
        return self.done + self.loads_left + len(self.round_seconds_left)

    @property
    def seconds_left(self) -> float:
        seen = self.load_seconds
        load = sum(seen) / len(seen) if seen else LOAD_SECONDS
        rounds = sum(self.round_seconds_left) + ROUND_EXTRA_SECONDS * len(self.round_seconds_left)
        return self.loads_left * load + rounds

    def loaded(self, seconds: float) -> None:
        self.done += 1
        self.loads_left = max(0, self.loads_left - 1)
        self.load_seconds.append(seconds)

    def round_over(self, seconds: float) -> None:
        """A round of so many seconds was done, or will not be."""
        self.done += 1
        if seconds in self.round_seconds_left:
            self.round_seconds_left.remove(seconds)
