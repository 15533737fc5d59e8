"""Usage of a target for a case, with all work that it put off until after the last round.

A server runs only while it is measured, in the lead before, and for the moments in which it is
woken and frozen. Work that its engine puts off in a round is still pending when it is woken for
the next one: flushes and compactions run beside the load of later rounds, and cost throughput
there. The lab waits for the work that is pending after the last round, and counts it: an engine
that puts work off is charged with all of it, by transaction.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping

# Owed after the last round: so much of the processor time of all rounds is worth a word.
OWED_TOLERANCE = 0.1


class Settling:
    """Adds up totals of probes, by name of the work."""

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
        """Of the processor time of the rounds, what came after the last one."""
        used = self._used["cpu_us"]
        return self._owed.get("cpu_us", 0.0) / used if used else 0.0

    def figures(self) -> dict[str, float]:
        """By transaction, as `settled_NAME_per_transaction`; cpu_us is a unit already."""
        if not self._transactions:
            return {}
        return {
            f"settled_{name}_per_transaction": (value + self._owed.get(name, 0.0))
            / self._transactions
            for name, value in self._used.items()
        }
