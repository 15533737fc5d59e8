"""A load driver for workloads that bring their own transactions (TPC-C, shop, users, blobs …).

A workload gives a factory of sessions; `Clients` holds `threads` of them, each in a process of its
own, seeded by `seed`, the draw and its number, which stay connected from round to round, and
returns the Outcome of each round; `drive` is for one round alone. Deadlocks,
lock timeouts and serialization failures are repeated with the same arguments and counted as
retries; other database errors are counted as errors, and the session goes on; a lost connection and
a full disk end the round.

    drive(self.params, "round 2", sink, lambda number: UserSession(target.connect()))

In a round the sessions work for `lead_seconds` first, which count for nothing but Outcome.lead.

A transaction's latency includes its retries, not the drawing of its arguments. Those that are under
way when time is up are finished and counted, and the time measured is that of the slowest session:
a stall at the end is not hidden.
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
from firn_lab.workloads.base import Outcome, Params, RoundPart, Second, Sink
from firn_lab.workloads.child_processes import Child

# After so many errors in a row a session gives up: something is wrong with the workload.
ERRORS_IN_A_ROW_MAX = 100
# A transaction that still loses against others so long after the end is given up.
RETRY_SECONDS = 60.0
# A session that sends nothing for so long beyond the end is taken for stuck.
GRACE_SECONDS = 120.0


@dataclass(frozen=True)
class Done:
    """A transaction that was done: its kind, and how many statements it took."""

    kind: str
    queries: int


class Session(Protocol):
    """One client. Made in its own process, where it opens its connection."""

    def choose(self, random: Random) -> Callable[[], Done]:
        """Draws the next transaction with all its arguments. Calling the result executes it; after
        `rollback` it is called again for a retry."""

    def rollback(self) -> None:
        """Ends the transaction after a failure."""

    def close(self) -> None:
        """Ends the session."""


@dataclass
class _Kind:
    """Of one kind of transaction, since the last report."""

    latencies: Histogram = field(default_factory=Histogram)
    errors: int = 0
    retries: int = 0


@dataclass
class _Report:
    """A session's report, about once a second. The last one has its `end`, its working time and
    its own processor time."""

    second: int
    kinds: dict[str, _Kind]
    queries: int = 0
    end: float | None = None
    cpu_seconds: float = 0.0


@dataclass(frozen=True)
class _Order:
    """The order that a session gets for each round."""

    lead: float
    seconds: float


@dataclass(frozen=True)
class _Lead:
    """The message that a session sends when its lead is over."""

    transactions: int


class Clients:
    """Sessions between their first round and `end`: see the head of the file."""

    def __init__(self, params: Params, draw: str, session: Callable[[int], Session]) -> None:
        """Connects them. Another `draw` has other transactions, the same on every target."""
        self._sessions: list[Child] = []
        try:
            for number in range(params.threads):
                random = Random(f"{params.seed}/{draw}/{number}")
                work = partial(_work, partial(session, number), random)
                self._sessions.append(Child("a session of the load driver", work))
            for each in self._sessions:
                each.receive()  # It is connected.
        except BaseException:
            self.end()
            raise

    def round(self, lead: float, seconds: float, sink: Sink) -> Outcome:
        """One round. After an error they are of no use any more."""
        for each in self._sessions:
            each.send(_Order(lead, seconds))
        led = _lead(self._sessions, lead, sink) if lead else 0
        return replace(_collect(self._sessions, seconds, sink), lead=led)

    def end(self) -> None:
        """Kills them; twice is once."""
        for each in self._sessions:
            each.end()
        self._sessions = []


def drive(params: Params, draw: str, sink: Sink, session: Callable[[int], Session]) -> Outcome:
    """One round of clients that end with it."""
    clients = Clients(params, draw, session)
    try:
        return clients.round(params.lead_seconds, params.seconds, sink)
    finally:
        clients.end()


def _lead(sessions: list[Child], seconds_max: float, sink: Sink) -> int:
    """Waits until the lead of all sessions is over; how many transactions it had."""
    transactions = 0
    for each in sessions:
        if not Child.ready([each], seconds_max + GRACE_SECONDS):
            raise LabError("the load driver's sessions are stuck")
        told: _Lead = each.receive()
        transactions += told.transactions
    sink.measured()
    return transactions


def _collect(sessions: list[Child], seconds_max: float, sink: Sink) -> Outcome:
    """Adds up the reports; tells the sink of each second that all sessions have reported."""
    kinds: dict[str, _Kind] = {}
    seconds: dict[int, list[_Report]] = {}
    # By session that still works: the last second it told of.
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
    """A session's process, until it is killed."""
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
    """Runs it until it is done or fails for good: what was done, retries, failure. After the
    deadline it is not tried again."""
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
