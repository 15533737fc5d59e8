"""A load driver for workloads with transactions of their own (TPC-C, shop, users, blobs …).

A workload provides a factory of sessions. `Clients` runs `threads` of them, each in a process of
its own, seeded by `seed`, `draw` and its number. They stay connected from round to round, and each
round returns an Outcome. `drive` runs a single round. Transactions that fail with a deadlock, lock
timeout or serialization failure are repeated with the same arguments and counted as retries. Other
database errors are counted as errors, and the session continues. A lost connection and a full disk
end the round.

    drive(self.params, "round 2", sink, lambda number: UserSession(target.connect()))

In each round the sessions first work for `lead_seconds`; these transactions count only in
Outcome.lead. A transaction's latency includes its retries, but not the drawing of its arguments.
Transactions that are running when the time is up are finished and counted, and the measured time is
that of the slowest session, so that a stall at the end is not hidden.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from functools import partial
from multiprocessing.connection import Connection
from random import Random
from typing import Protocol

from firn_lab.errors import LabError
from firn_lab.histogram import Histogram
from firn_lab.sqlerrors import Meaning, meaning
from firn_lab.workloads.child_processes import Child
from firn_lab.workloads.workload import Outcome, Params, RoundPart, Second, Sink

# A session gives up after this many errors in a row, because then the workload must be wrong.
ERRORS_IN_A_ROW_MAX = 100
# A transaction gets no further retry when its round has been over for so many seconds.
RETRY_SECONDS = 60.0
# A session that is silent for this many seconds after the end of the round is stuck.
GRACE_SECONDS = 120.0


@dataclass(frozen=True)
class Done:
    """A finished transaction: its kind, and its number of statements."""

    kind: str
    queries: int


class Session(Protocol):
    """One client, created in its own process, where it opens its connection."""

    def choose(self, random: Random) -> Callable[[], Done]:
        """Draws the next transaction with all its arguments.

        The returned function executes it. For a retry it is called again after `rollback`.
        """

    def rollback(self) -> None:
        """Rolls back after a failure."""

    def close(self) -> None:
        """Closes the connection."""


@dataclass
class _Kind:
    """Counts of one kind of transaction since the last report."""

    latencies: Histogram = field(default_factory=Histogram)
    errors: int = 0
    retries: int = 0


@dataclass
class _Report:
    """A session's report, sent about once a second.

    The last one has `end`, the seconds that it worked, and the session's processor time.
    """

    second: int
    kinds: dict[str, _Kind]
    queries: int = 0
    end: float | None = None
    cpu_seconds: float = 0.0


@dataclass(frozen=True)
class _Order:
    """The command for one round, sent to each session."""

    lead: float
    seconds: float


@dataclass(frozen=True)
class _Lead:
    """A session's message at the end of its lead."""

    transactions: int


class Clients:
    """Sessions that stay connected from their first round to `end`; see the top of the file."""

    def __init__(self, params: Params, draw: str, session: Callable[[int], Session]) -> None:
        """Connects the sessions. Each `draw` gives other transactions, the same on every target."""
        self._sessions: list[Child] = []
        try:
            for number in range(params.threads):
                random = Random(f"{params.seed}/{draw}/{number}")
                work = partial(_work, partial(session, number), random)
                self._sessions.append(Child("a session of the load driver", work))
            for each in self._sessions:
                each.receive()  # Wait until it is connected.
        except BaseException:
            self.end()
            raise

    def round(self, lead: float, seconds: float, sink: Sink) -> Outcome:
        """Runs one round. After an error the clients cannot be used again."""
        for each in self._sessions:
            each.send(_Order(lead, seconds))
        led = _lead(self._sessions, lead, sink) if lead else 0
        return replace(_collect(self._sessions, seconds, sink), lead=led)

    def end(self) -> None:
        """Kills the sessions; repeated calls have no effect."""
        for each in self._sessions:
            each.end()
        self._sessions = []


def drive(params: Params, draw: str, sink: Sink, session: Callable[[int], Session]) -> Outcome:
    """Runs one round with clients of its own."""
    clients = Clients(params, draw, session)
    try:
        return clients.round(params.lead_seconds, params.seconds, sink)
    finally:
        clients.end()


def _lead(sessions: list[Child], seconds_max: float, sink: Sink) -> int:
    """Waits for the end of all leads; returns the number of their transactions."""
    transactions = 0
    for each in sessions:
        if not Child.ready([each], seconds_max + GRACE_SECONDS):
            raise LabError("the load driver's sessions are stuck")
        told: _Lead = each.receive()
        transactions += told.transactions
    sink.measured()
    return transactions


def _collect(sessions: list[Child], seconds_max: float, sink: Sink) -> Outcome:
    """Adds up the reports; passes each second to the sink once all sessions have reported it."""
    kinds: dict[str, _Kind] = {}
    seconds: dict[int, list[_Report]] = {}
    # For each running session, the last second that it has reported.
    reported = dict.fromkeys(sessions, -1)
    queries, longest, cpu_seconds, told = 0, 0.0, 0.0, 0
    while reported:
        ready = Child.ready(reported, seconds_max + GRACE_SECONDS)
        if not ready:
            raise LabError("the load driver's sessions are stuck")
        for each in ready:
            report: _Report = each.receive()
            seconds.setdefault(report.second, []).append(report)
            queries += report.queries
            for name, kind in report.kinds.items():
                total = kinds.setdefault(name, _Kind())
                total.latencies.merge(kind.latencies)
                total.errors += kind.errors
                total.retries += kind.retries
            reported[each] = report.second
            if report.end is not None:
                longest = max(longest, report.end)
                cpu_seconds += report.cpu_seconds
                del reported[each]
        last = min(reported.values(), default=int(seconds_max))
        while told <= last and told < int(seconds_max):
            sink.second(_second(told, seconds.pop(told, [])))
            told += 1
    everything = Histogram()
    for kind in kinds.values():
        everything.merge(kind.latencies)
    return Outcome(
        transactions=everything.count,
        queries=queries,
        seconds=longest,
        errors=sum(kind.errors for kind in kinds.values()),
        retries=sum(kind.retries for kind in kinds.values()),
        latency=everything.summary(),
        parts=tuple(_part(name, kind) for name, kind in sorted(kinds.items())),
        client_cpu_seconds=cpu_seconds,
    )


def _part(name: str, kind: _Kind) -> RoundPart:
    latencies = kind.latencies
    return RoundPart(
        name,
        latencies.count,
        latencies.total_us / 1e6,
        latencies.summary(),
        kind.errors,
        kind.retries,
    )


def _second(number: int, reports: list[_Report]) -> Second:
    latencies = Histogram()
    errors = retries = 0
    for report in reports:
        for kind in report.kinds.values():
            latencies.merge(kind.latencies)
            errors += kind.errors
            retries += kind.retries
    summary = latencies.summary()
    return Second(
        number,
        latencies.count,
        sum(report.queries for report in reports),
        errors,
        retries,
        summary.p95_ms if summary else None,
    )


def _work(session: Callable[[], Session], random: Random, pipe: Connection) -> None:
    """The main function of a session's process; it runs until it is killed."""
    made = session()
    pipe.send("ready")
    while True:
        order: _Order = pipe.recv()
        if order.lead > 0:
            told: list[_Report] = []
            _loop(told.append, made, random, order.lead)
            kinds = [kind for report in told for kind in report.kinds.values()]
            pipe.send(_Lead(sum(kind.latencies.count for kind in kinds)))
        _loop(pipe.send, made, random, order.seconds)


def _loop(
    send: Callable[[_Report], None], session: Session, random: Random, seconds: float
) -> None:
    began, cpu_began = time.perf_counter(), time.process_time()
    report = _Report(0, {})
    errors_in_a_row = 0
    while (now := time.perf_counter() - began) < seconds:
        if int(now) > report.second:
            send(report)
            report = _Report(int(now), {})
        transaction = session.choose(random)
        started = time.perf_counter()
        done, retries, failure = _transaction(session, transaction, began + seconds + RETRY_SECONDS)
        kind = report.kinds.setdefault(done.kind if done else "failed", _Kind())
        kind.retries += retries
        if done is not None:
            kind.latencies.add((time.perf_counter() - started) * 1e6)
            report.queries += done.queries
            errors_in_a_row = 0
        else:
            kind.errors += 1
            errors_in_a_row += 1
            if errors_in_a_row >= ERRORS_IN_A_ROW_MAX:
                raise LabError(f"{errors_in_a_row} errors in a row, the last: {failure}")
    report.end = time.perf_counter() - began
    report.cpu_seconds = time.process_time() - cpu_began
    send(report)


def _transaction(
    session: Session, transaction: Callable[[], Done], deadline: float
) -> tuple[Done | None, int, Exception | None]:
    """Runs a transaction with retries until it succeeds or fails for good.

    Returns its result, the number of retries and the final error. After the deadline there are no
    retries.
    """
    retries = 0
    while True:
        try:
            return transaction(), retries, None
        except Exception as error:
            what = meaning(error)
            if what in (Meaning.LOST, Meaning.FULL) or isinstance(error, LabError):
                raise
            session.rollback()
            if what is Meaning.ERROR or time.perf_counter() > deadline:
                return None, retries, error
            retries += 1
