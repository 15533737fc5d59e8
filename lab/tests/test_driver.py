"""The load driver without a database, with simulated sessions."""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from random import Random
from typing import Any

import psycopg
import pymysql
import pytest

from firn_lab.errors import DiskFull, LabError, TargetDied
from firn_lab.sqlerrors import Meaning, meaning
from firn_lab.workloads import Params, Second, driver
from firn_lab.workloads.driver import Done, drive


@dataclass
class Heard:
    """A sink that records the seconds."""

    seconds: list[Second] = field(default_factory=list)

    def second(self, second: Second) -> None:
        self.seconds.append(second)

    def measured(self) -> None:
        raise AssertionError("these have no lead")

    def progress(self, done: float) -> None:
        raise AssertionError("a timed load has no progress of its own")


class Steady:
    """A session whose transactions take 5 ms and three statements; `fails` may raise."""

    def __init__(self, fails: Callable[[int], None] = lambda attempt: None) -> None:
        self.attempts = 0
        self.fails = fails
        self.rolled_back = 0

    def choose(self, random: Random) -> Callable[[], Done]:
        kind = "even" if random.randrange(2) == 0 else "odd"

        def transaction() -> Done:
            self.attempts += 1
            self.fails(self.attempts)
            time.sleep(0.005)
            return Done(kind, 3)

        return transaction

    def rollback(self) -> None:
        self.rolled_back += 1

    def close(self) -> None:
        pass


def test_every_transaction_is_counted_once() -> None:
    heard = Heard()
    outcome = drive(
        Params(lead_seconds=0, threads=3, seconds=2.2), "round 0", heard, lambda number: Steady()
    )
    assert outcome.queries == 3 * outcome.transactions
    assert outcome.transactions == sum(part.count for part in outcome.parts)
    assert {part.name for part in outcome.parts} == {"even", "odd"}
    assert (outcome.errors, outcome.retries) == (0, 0)
    assert outcome.seconds >= 2.2
    # Three sessions whose transactions take 5 ms cannot do more than 600 a second.
    assert 3 <= outcome.transactions <= 600 * outcome.seconds
    assert outcome.latency is not None
    assert outcome.latency.p50_ms >= 5
    assert [second.second for second in heard.seconds] == [0, 1]
    assert 0 < sum(second.transactions for second in heard.seconds) <= outcome.transactions


def test_sessions_stay_connected_from_round_to_round(tmp_path: Path) -> None:
    made = tmp_path / "made"

    def session(number: int) -> Steady:
        with made.open("a") as file:
            file.write(f"{number}\n")
        return Steady()

    clients = driver.Clients(Params(threads=2), "round 0", session)
    try:
        outcomes = [clients.round(0.0, 0.2, Heard()) for _ in range(3)]
    finally:
        clients.end()
    clients.end()
    assert all(outcome.transactions > 0 and outcome.seconds >= 0.2 for outcome in outcomes)
    assert sorted(made.read_text().split()) == ["0", "1"]


def test_the_lead_counts_for_nothing_but_itself() -> None:
    class Leading(Heard):
        leads = 0

        def measured(self) -> None:
            assert self.seconds == []
            self.leads += 1

    heard = Leading()
    params = Params(threads=2, lead_seconds=0.5, seconds=1.0)
    outcome = drive(params, "round 0", heard, lambda number: Steady())
    assert heard.leads == 1
    assert 1.0 <= outcome.seconds < 1.0 + driver.GRACE_SECONDS
    assert outcome.lead > 0 and outcome.transactions > 0
    assert sum(part.count for part in outcome.parts) == outcome.transactions
    assert outcome.all_transactions == outcome.lead + outcome.transactions


def test_what_lost_against_another_is_repeated_and_counted() -> None:
    def fails(attempt: int) -> None:
        if attempt % 3 == 0:
            raise pymysql.err.OperationalError(1213, "Deadlock found")

    params = Params(lead_seconds=0, threads=1, seconds=0.5)
    outcome = drive(params, "round 0", Heard(), lambda number: Steady(fails))
    assert outcome.errors == 0
    assert outcome.transactions > 5
    # Two attempts in a row succeed, the third one fails and is repeated, so there is a retry for
    # every two transactions.
    assert outcome.retries in (outcome.transactions // 2, outcome.transactions // 2 - 1)


def test_an_error_is_counted_and_the_session_goes_on() -> None:
    def fails(attempt: int) -> None:
        if attempt % 2 == 0:
            raise pymysql.err.IntegrityError(1062, "Duplicate entry")

    params = Params(lead_seconds=0, threads=1, seconds=0.5)
    outcome = drive(params, "round 0", Heard(), lambda number: Steady(fails))
    assert outcome.transactions > 5
    assert abs(outcome.errors - outcome.transactions) <= 1
    assert outcome.retries == 0


@pytest.mark.parametrize(
    ("error", "expected"),
    [
        (pymysql.err.OperationalError(2013, "Lost connection"), TargetDied),
        (pymysql.err.OperationalError(1021, "Disk full"), DiskFull),
        (pymysql.err.InternalError(1030, "Got error 28, errno: 28 No space left"), DiskFull),
        (pymysql.err.ProgrammingError(1146, "no such table"), LabError),
    ],
)
def test_what_cannot_go_on_ends_the_round(error: Exception, expected: type[LabError]) -> None:
    def fails(attempt: int) -> None:
        if attempt > 3:
            raise error

    with pytest.raises(expected) as caught:
        drive(
            Params(lead_seconds=0, threads=2, seconds=30),
            "round 0",
            Heard(),
            lambda number: Steady(fails),
        )
    assert caught.type is expected
    assert str(error.args[-1]) in str(caught.value)


def _children() -> set[str]:
    return set(Path(f"/proc/self/task/{os.getpid()}/children").read_text().split())


def test_no_process_is_left_when_a_session_dies() -> None:
    # Earlier tests in this process may have left children, dead or alive, which do not count.
    before = _children()

    def session(number: int) -> Steady:
        if number == 1:
            os._exit(3)
        return Steady()

    with pytest.raises(LabError, match="was killed"):
        drive(Params(lead_seconds=0, threads=3, seconds=30), "round 0", Heard(), session)
    names = [Path(f"/proc/{pid}/cmdline").read_bytes() for pid in _children() - before]
    # Only the guard process is left.
    assert all(b"-I\0-S\0-c" in name for name in names)


def test_rounds_draw_differently_and_targets_alike() -> None:
    class Drawing(Steady):
        def choose(self, random: Random) -> Callable[[], Done]:
            return lambda: Done(str(random.random()), 1)

    def drawn(seed: int, draw: str) -> set[str]:
        params = Params(lead_seconds=0, threads=2, seconds=0.05, seed=seed)
        return {part.name for part in drive(params, draw, Heard(), lambda number: Drawing()).parts}

    assert len(drawn(1, "round 0") & drawn(1, "round 0")) >= 2
    assert not drawn(1, "round 0") & drawn(2, "round 0")
    assert not drawn(1, "round 0") & drawn(1, "round 1")


class Told:
    """Replaces time and a session's pipe: a clock that sessions advance, and the reports."""

    def __init__(self) -> None:
        self.now = 0.0
        self.reports: list[Any] = []

    def perf_counter(self) -> float:
        return self.now

    def process_time(self) -> float:
        return self.now / 2

    def send(self, report: Any) -> None:
        self.reports.append(report)


def test_latency_is_the_transaction_s_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    """Drawing a transaction takes 200 ms here, executing it 10 ms."""
    told = Told()
    monkeypatch.setattr(driver, "time", told)

    class Slow(Steady):
        def choose(self, random: Random) -> Callable[[], Done]:
            told.now += 0.2

            def transaction() -> Done:
                told.now += 0.01
                return Done("x", 1)

            return transaction

    driver._loop(told.send, Slow(), Random(1), 2.0)
    latencies = [report.kinds["x"].latencies for report in told.reports]
    assert sum(each.count for each in latencies) == 10
    assert all(each.summary().max_ms == pytest.approx(10, rel=0.1) for each in latencies)
    last = told.reports[-1]
    assert last.end == pytest.approx(2.1)
    assert last.cpu_seconds == pytest.approx(2.1 / 2)


def test_what_never_wins_is_given_up_after_the_end(monkeypatch: pytest.MonkeyPatch) -> None:
    told = Told()
    monkeypatch.setattr(driver, "time", told)

    def loses(attempt: int) -> None:
        told.now += 10
        raise pymysql.err.OperationalError(1213, "Deadlock found")

    session = Steady(loses)
    driver._loop(told.send, session, Random(1), 5.0)
    (kind,) = told.reports[-1].kinds.values()
    # Retries begin at 10, 20 … 60 s and fail. There is no retry at 70 s, more than a minute after
    # the end of the round at 5 s.
    assert (kind.errors, kind.retries, session.attempts) == (1, 6, 7)


def test_the_driver_tells_how_much_processor_it_took() -> None:
    class Busy(Steady):
        def choose(self, random: Random) -> Callable[[], Done]:
            def transaction() -> Done:
                began = time.process_time()
                while time.process_time() - began < 0.05:
                    pass
                return Done("x", 1)

            return transaction

    outcome = drive(
        Params(lead_seconds=0, threads=2, seconds=0.3), "round 0", Heard(), lambda number: Busy()
    )
    assert outcome.client_cpu_seconds is not None
    assert outcome.client_cpu_seconds >= 0.05 * outcome.transactions


def test_errors_of_both_drivers() -> None:
    assert meaning(psycopg.errors.SerializationFailure()) is Meaning.RETRY
    assert meaning(psycopg.errors.DeadlockDetected()) is Meaning.RETRY
    assert meaning(psycopg.errors.AdminShutdown()) is Meaning.LOST
    assert meaning(psycopg.OperationalError("the connection is lost")) is Meaning.LOST
    assert meaning(psycopg.errors.DiskFull()) is Meaning.FULL
    assert meaning(psycopg.errors.UniqueViolation()) is Meaning.ERROR
    assert meaning(pymysql.err.OperationalError(1205, "timeout")) is Meaning.RETRY
    assert meaning(pymysql.err.InterfaceError(0, "")) is Meaning.LOST
    assert meaning(ValueError("x")) is Meaning.ERROR
