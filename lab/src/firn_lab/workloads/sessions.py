"""Base of workloads with sessions: tables filled in shares, transactions by the load driver.

@WORKLOADS.register("users")
class Users(SessionWorkload):
    summary = "a web user-account table"
    options = {"rows": "1000000"}
    def create(self, target): ...          # creates the empty tables
    def shares(self): ...                  # returns their rows
    def session(self, target): ...         # returns a factory of sessions, by number
    def check(self, target): ...           # returns errors in the data
"""

from __future__ import annotations

import dataclasses
from abc import abstractmethod
from collections.abc import Callable, Mapping, Sequence
from typing import ClassVar

from firn_lab.clock import Clock
from firn_lab.targets.target import Target
from firn_lab.workloads.driver import Clients, Session, drive
from firn_lab.workloads.fill import Share, fill
from firn_lab.workloads.workload import Outcome, Params, Second, Sink, Workload


class SessionWorkload(Workload):
    """Runs sessions. The draws depend on the round but not on the target."""

    # For each table, an aggregate expression over all rows. Before the first round, a query with
    # this expression warms the caches.
    warm_reads: ClassVar[Mapping[str, str]] = {}
    # The name of a figure and a kind of transaction: the figure is the number of such transactions
    # per minute.
    rate: ClassVar[tuple[str, str] | None] = None
    # Number of processes that load the rows in parallel; None: one per core.
    load_processes: ClassVar[int | None] = None

    def __init__(self, name: str, params: Params) -> None:
        super().__init__(name, params)
        # By target: the clients that stay connected between rounds.
        self._clients: dict[str, Clients] = {}

    @abstractmethod
    def create(self, target: Target) -> None:
        """Creates the tables in an empty database."""

    @abstractmethod
    def shares(self) -> Sequence[Share]:
        """The rows of the tables."""

    @abstractmethod
    def session(self, target: Target) -> Callable[[int], Session]:
        """A factory that creates the session with a number, in that session's own process."""

    def load(self, target: Target, sink: Sink) -> None:
        self.create(target)
        fill(target, self.shares(), sink, self.load_processes)
        target.analyze()

    def warm(self, target: Target, clock: Clock) -> None:
        """Reads every table once, then runs the load for `warm_seconds`."""
        for table, expression in self.warm_reads.items():
            target.query(f"SELECT {expression} FROM {table}")
        if self.params.warm_seconds > 0:
            params = dataclasses.replace(
                self.params, seconds=self.params.warm_seconds, lead_seconds=0.0
            )
            drive(params, "warm", _Quiet(), self.session(target))

    def measure(self, target: Target, clock: Clock, sink: Sink, number: int) -> Outcome:
        """Keeps the clients, whose draws continue from round to round."""
        if target.name not in self._clients:
            draw = f"from round {number}"
            self._clients[target.name] = Clients(self.params, draw, self.session(target))
        clients, params = self._clients[target.name], self.params
        try:
            outcome = clients.round(params.lead_seconds, params.seconds, sink)
        except BaseException:
            self.leave(target)
            raise
        if self.rate is None:
            return outcome
        figure, kind = self.rate
        count = sum(part.count for part in outcome.parts if part.name == kind)
        rate = count * 60 / max(outcome.seconds, 1e-9)
        return dataclasses.replace(outcome, figures={figure: rate})

    def leave(self, target: Target) -> None:
        clients = self._clients.pop(target.name, None)
        if clients is not None:
            clients.end()


class _Quiet:
    """A sink that ignores all reports."""

    def second(self, second: Second) -> None: ...

    def measured(self) -> None: ...

    def progress(self, done: float) -> None: ...
