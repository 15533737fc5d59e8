"""A workload of sessions: tables filled in shares, rounds of transactions by the load driver.

@WORKLOADS.register("users")
class Users(SessionWorkload):
    summary = "a web user-account table"
    options = {"rows": "1000000"}

    def create(self, target): ...          # the tables, empty
    def shares(self): ...                  # their rows
    def session(self, target): ...         # a factory of sessions, by number
    def check(self, target): ...           # what is wrong afterwards
"""

from __future__ import annotations

import dataclasses
from abc import abstractmethod
from collections.abc import Callable, Mapping, Sequence
from typing import ClassVar

from firn_lab.clock import Clock
from firn_lab.targets.base import Target
from firn_lab.workloads.base import Outcome, Params, Second, Sink, Workload
from firn_lab.workloads.driver import Clients, Session, drive
from firn_lab.workloads.fill import Share, fill


class SessionWorkload(Workload):
    """The round enters the draws here and nowhere else: rounds differ, targets do not."""

    # By table: what is read of all its rows before the first round.
    warm_reads: ClassVar[Mapping[str, str]] = {}
    # A figure and the kind of transaction of which it is the rate, a minute.
    rate: ClassVar[tuple[str, str] | None] = None
    # Shares loaded at once; None: as many as there are cores.
    load_processes: ClassVar[int | None] = None

    def __init__(self, name: str, params: Params) -> None:
        super().__init__(name, params)
        # By target: its clients between rounds.
        self._clients: dict[str, Clients] = {}

    @abstractmethod
    def create(self, target: Target) -> None:
        """Makes the tables in an empty database."""

    @abstractmethod
    def shares(self) -> Sequence[Share]:
        """Their rows."""

    @abstractmethod
    def session(self, target: Target) -> Callable[[int], Session]:
        """Makes the session of a number, in that session's own process."""

    def load(self, target: Target, sink: Sink) -> None:
        self.create(target)
        fill(target, self.shares(), sink, self.load_processes)
        target.analyze()

    def warm(self, target: Target, clock: Clock) -> None:
        """Reads every table once, then works for a while."""
        for table, expression in self.warm_reads.items():
            target.query(f"SELECT {expression} FROM {table}")
        if self.params.warm_seconds > 0:
            params = dataclasses.replace(
                self.params, seconds=self.params.warm_seconds, lead_seconds=0.0
            )
            drive(params, "warm", _Quiet(), self.session(target))

    def measure(self, target: Target, clock: Clock, sink: Sink, number: int) -> Outcome:
        """The clients stay: their draws go on from round to round."""
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
    """A sink that hears nothing."""

    def second(self, second: Second) -> None: ...

    def measured(self) -> None: ...

    def progress(self, done: float) -> None: ...
