"""A load driver for workloads that bring their own transactions (TPC-C, shop, users, blobs …).

A workload gives a factory of sessions; `drive` runs `threads` of them for `seconds`, each in a
process of its own (Python's lock would make threads take turns), seeded by `seed` and number, and
returns the Outcome. Deadlocks, lock timeouts and serialization failures are repeated with the same
arguments and counted as retries; other database errors are counted as errors, and the session goes
on; a lost connection and a full disk end the round.

    class Users(Workload):
        def measure(self, target, clock, sink):
            return drive(self.params, sink, lambda number: UserSession(target.connect()))

A transaction's latency includes its retries. Those that are under way when time is up are finished
and counted, and the time measured is that of the slowest session: a stall at the end is not hidden.
"""

from __future__ import annotations

import multiprocessing
import os
import signal
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from multiprocessing.connection import Connection, wait
from random import Random
from typing import Any, Protocol

from firn_lab.errors import DiskFull, LabError, TargetDied
from firn_lab.histogram import Histogram
from firn_lab.processes import GUARD
from firn_lab.sqlerrors import Meaning, meaning
from firn_lab.workloads.base import Outcome, Params, Part, Second, Sink

# After so many errors in a row a session gives up: something is wrong with the workload.
ERRORS_IN_A_ROW_MAX = 100
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
        """Draws the next transaction with all its arguments. What it returns does it, and is
        called again after a retry, following `rollback`."""

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
    """What a session sends, about once a second. `end`: how long it worked; it was the last."""

    second: int
    kinds: dict[str, _Kind]
    queries: int = 0
    end: float | None = None


def drive(
    params: Params,
    sink: Sink,
    session: Callable[[int], Session],
    figures: Mapping[str, float] | None = None,
) -> Outcome:
    """One round: see the head of the file."""
    context = multiprocessing.get_context("fork")
    pipes: list[Connection] = []
    processes: list[Any] = []
    try:
        for number in range(params.threads):
            here, there = context.Pipe()
            process = context.Process(
                target=_work, args=(there, here, session, number, params), daemon=True
            )
            process.start()
            assert process.pid is not None
            GUARD.watch(process.pid)
            there.close()
            pipes.append(here)
            processes.append(process)
        for pipe in pipes:
            _receive(pipe)  # It is connected.
        for pipe in pipes:
            pipe.send("go")
        return _collect(pipes, params, sink, figures or {})
    finally:
        for process in processes:
            process.kill()
        for process in processes:
            process.join()
            GUARD.forget(process.pid)
        for pipe in pipes:
            pipe.close()


def drive_unseen(params: Params, session: Callable[[int], Session]) -> None:
    """The same for `warm_seconds`, with other draws; nobody is told."""
    if params.warm_seconds > 0:
        drive(replace(params, seconds=params.warm_seconds, seed=params.seed + 1), _Quiet(), session)


class _Quiet:
    """A sink that hears nothing."""

    def second(self, second: Second) -> None: ...

    def progress(self, done: float) -> None: ...


def _receive(pipe: Connection) -> Any:
    """The next message of a session; raises what it failed with."""
    try:
        message = pipe.recv()
    except EOFError:
        raise LabError("a session of the load driver was killed") from None
    if isinstance(message, LabError):
        raise message
    return message


def _collect(
    pipes: list[Connection], params: Params, sink: Sink, figures: Mapping[str, float]
) -> Outcome:
    """Adds up the reports; tells the sink of each second that all sessions have reported."""
    kinds: dict[str, _Kind] = {}
    seconds: dict[int, list[_Report]] = {}
    reported = dict.fromkeys(range(len(pipes)), -1)
    numbers = {id(pipe): number for number, pipe in enumerate(pipes)}
    open_pipes = list(pipes)
    queries, longest, told = 0, 0.0, 0
    while open_pipes:
        ready = wait(open_pipes, params.seconds + GRACE_SECONDS)
        if not ready:
            raise LabError("the load driver's sessions are stuck")
        for pipe in ready:
            assert isinstance(pipe, Connection)
            report: _Report = _receive(pipe)
            seconds.setdefault(report.second, []).append(report)
            queries += report.queries
            for name, kind in report.kinds.items():
                total = kinds.setdefault(name, _Kind())
                total.latencies.merge(kind.latencies)
                total.errors += kind.errors
                total.retries += kind.retries
            reported[numbers[id(pipe)]] = report.second
            if report.end is not None:
                longest = max(longest, report.end)
                open_pipes.remove(pipe)
                reported[numbers[id(pipe)]] = 1 << 30
        while told <= min(reported.values()) and told < int(params.seconds):
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
        figures=figures,
    )


def _part(name: str, kind: _Kind) -> Part:
    latencies = kind.latencies
    return Part(
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


def _work(
    pipe: Connection,
    parent: Connection,
    factory: Callable[[int], Session],
    number: int,
    params: Params,
) -> None:
    """A session's process. Ctrl-C is the parent's affair; the end of the pipe is the end."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    parent.close()
    try:
        session = factory(number)
        pipe.send("ready")
        pipe.recv()
        _loop(pipe, session, Random(f"{params.seed}/{number}"), params.seconds)
        session.close()
    except (BrokenPipeError, EOFError):
        pass  # The parent has given up.
    except Exception as error:
        pipe.send(as_lab_error(error))
    finally:
        # Nothing of the parent's (open files, exit handlers) is to be run down here.
        os._exit(0)


def as_lab_error(error: Exception) -> LabError:
    """What a session failed with, in a form that a pipe carries."""
    if isinstance(error, LabError):
        return error
    text = f"{type(error).__name__}: {error}"
    match meaning(error):
        case Meaning.FULL:
            return DiskFull(text)
        case Meaning.LOST:
            return TargetDied(f"the connection was lost: {text}")
        case _:
            return LabError(text)


def _loop(pipe: Connection, session: Session, random: Random, seconds: float) -> None:
    began = time.perf_counter()
    report = _Report(0, {})
    errors_in_a_row = 0
    while (now := time.perf_counter() - began) < seconds:
        if int(now) > report.second:
            pipe.send(report)
            report = _Report(int(now), {})
        done, retries, failure = _transaction(session, session.choose(random))
        kind = report.kinds.setdefault(done.kind if done else "failed", _Kind())
        kind.retries += retries
        if done is not None:
            kind.latencies.add((time.perf_counter() - began - now) * 1e6)
            report.queries += done.queries
            errors_in_a_row = 0
        else:
            kind.errors += 1
            errors_in_a_row += 1
            if errors_in_a_row >= ERRORS_IN_A_ROW_MAX:
                raise LabError(f"{errors_in_a_row} errors in a row, the last: {failure}")
    report.end = time.perf_counter() - began
    pipe.send(report)


def _transaction(
    session: Session, transaction: Callable[[], Done]
) -> tuple[Done | None, int, Exception | None]:
    """Runs it until it is done or fails for good: what was done, retries, failure."""
    retries = 0
    while True:
        try:
            return transaction(), retries, None
        except Exception as error:
            what = meaning(error)
            if what in (Meaning.LOST, Meaning.FULL) or isinstance(error, LabError):
                raise
            session.rollback()
            if what is Meaning.ERROR:
                return None, retries, error
            retries += 1
