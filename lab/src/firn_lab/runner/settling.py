"""Attributes to a case all work of a target, including the work deferred past the last round.

A server runs only while it is measured, during the lead, and briefly when it is woken and frozen.
Work that its engine defers in a round is pending when it wakes for the next one: flushes and
compactions then compete with the load of later rounds and reduce throughput there. After the last
round the lab waits for the pending work and adds it, so that an engine is charged per transaction
with all the work that it defers.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping

# Deferred processor time above this fraction of all rounds' processor time causes a warning.
OWED_TOLERANCE = 0.1


class Settling:
    """Adds up the resources that a target uses for a case, by name (processor time, bytes …)."""

    def __init__(self) -> None:
        self._used: Counter[str] = Counter()
        self._owed: Mapping[str, float] = {}
        self._transactions = 0

    def round_over(self, totals: Mapping[str, float], transactions: int) -> None:
        self._used.update(totals)
        self._transactions += transactions

    def rest_over(self, totals: Mapping[str, float]) -> None:
        self._owed = totals

    @property
    def owed(self) -> float:
        """Processor time after the last round, as a fraction of that of the rounds."""
        used = self._used["cpu_us"]
        return self._owed.get("cpu_us", 0.0) / used if used else 0.0

    def figures(self) -> dict[str, float]:
        """Usage per transaction, named `settled_NAME_per_transaction`."""
        if not self._transactions:
            return {}
        return {
            f"settled_{name}_per_transaction": (value + self._owed.get(name, 0.0))
            / self._transactions
            for name, value in self._used.items()
        }
