"""A load driver for workloads that bring their own transactions (TPC-C, shop, users, blobs …).

A workload gives a factory of sessions; `drive` runs `threads` of them for `seconds`, each in a
process of its own (Python's lock would make threads take turns), seeded by `seed + number`, and
returns the Outcome. Deadlocks, lock timeouts and serialization failures are retried with the same
arguments (`Retry`), counted as retries; other database errors are errors, counted, and the session
goes on; a lost connection ends the round.

    class Users(Workload):
        def measure(self, target, clock, sink):
            return drive(self.params, sink, lambda number: UserSession(target.connect(), number))
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from random import Random
from typing import Protocol

from firn_lab.workloads.base import Outcome, Params, Sink


@dataclass(frozen=True)
class Done:
    """A transaction that was done: its kind, and how many statements it took."""

    kind: str
    queries: int


class Session(Protocol):
    """One client. Made in its own process, where it opens its connection."""

    def choose(self, random: Random) -> Callable[[], Done]:
        """Draws the next transaction with all its arguments. What it returns does it, and is
        called again after a retry; it must roll back what it did when it raises."""

    def rollback(self) -> None:
        """Ends the transaction after a failure."""

    def close(self) -> None:
        """Ends the session."""


def drive(
    params: Params,
    sink: Sink,
    session: Callable[[int], Session],
    figures: Mapping[str, float] | None = None,
) -> Outcome:
    """One round: see the head of the file."""
    raise NotImplementedError
