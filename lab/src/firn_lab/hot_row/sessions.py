"""Sessions of one process that update one row: each sends its next UPDATE when it has an answer.

    with HotRow(connect, "firn", Mix(sessions=10_000)) as sessions:
        sessions.create()
        sessions.connect()
        round = sessions.round(lead=2, seconds=10, processor_seconds=...)
        assert sessions.check() == []

Three kinds of sessions wait for the row. *Plain* ones wait as long as the server lets them. *Hasty*
ones give up after a second, and try again. *Killed* ones meet KILL QUERY, and sometimes KILL, which
takes their connection: they get another one after the round.

The count is checked exactly. A plain or hasty session that gets an error has not committed. A
killed one may have: a kill that arrives after the commit turns its answer into an error. So their
statement also counts in a row of the session's own, and the hot row must have the number of OKs of
plain and hasty sessions plus the sum of these rows.
"""

from __future__ import annotations

import contextlib
import select
import socket
import time
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from enum import Enum
from random import Random
from typing import Any

import pymysql

from firn_lab.errors import LabError
from firn_lab.histogram import Histogram, Latency
from firn_lab.hot_row.protocol import query_packet, reply_error

# Errors: lock wait timeout, statement killed, connection killed, no session with this number.
TIMED_OUT, QUERY_KILLED, CONNECTION_KILLED, NO_SUCH_THREAD = 1205, 1317, 1927, 1094
# Number of the session that kills.
KILLER = -1
# Counted in place of an error number if the connection ends without an answer.
NO_ANSWER = 0
HASTY_SECONDS = 1
# One kill of so many takes the connection.
CONNECTION_KILLS = 8
# Limit on the time until all statements are answered after a round. It is more than the default
# limit of a lock wait, 50 s.
DRAIN_SECONDS_MAX = 300.0
_READ_BYTES = 4096
_UPDATE = "UPDATE hot SET n = n + 1 WHERE id = 1"
_UPDATE_BOTH = (
    "UPDATE hot, own SET hot.n = hot.n + 1, own.n = own.n + 1 WHERE hot.id = 1 AND own.id = {}"
)


class Kind(Enum):
    """The way in which a session's waits may end early; see the top of the file."""

    PLAIN = "plain"
    HASTY = "hasty"
    KILLED = "killed"
    KILLER = "killing"


@dataclass(frozen=True)
class Mix:
    """The number of sessions and the fractions of hasty and killed ones.

    `kills_per_second` is the rate at which statements of killed sessions meet a kill.
    """

    sessions: int
    hasty: float = 0.05
    killed: float = 0.05
    kills_per_second: float = 20.0

    def kind(self, number: int) -> Kind:
        """The kind of a session, which are spread evenly over the numbers."""
        place = number * 0.6180339887 % 1
        if place < self.hasty:
            return Kind.HASTY
        return Kind.KILLED if place < self.hasty + self.killed else Kind.PLAIN


@dataclass(slots=True)
class Session:
    """One session. `began` is the time at which its statement was sent; 0 without a statement."""

    number: int
    kind: Kind
    packet: bytes
    connection: Any
    socket: socket.socket
    thread_id: int
    began: float = 0.0
    received: bytes = b""


@dataclass
class Counts:
    """Answers of one span of time: commits with their latencies, and errors by number."""

    commits: int = 0
    latencies: Histogram = field(default_factory=Histogram)
    errors: Counter[int] = field(default_factory=Counter)


@dataclass(frozen=True)
class Round:
    """The measured seconds of a round; `drain_seconds` is the wait for all answers after it."""

    seconds: float
    commits: int
    latency: Latency | None
    errors: Counter[int]
    server_cpu_seconds: float
    client_cpu_seconds: float
    drain_seconds: float


class HotRow:
    """The sessions on one server, and one more that kills."""

    def __init__(self, connect: Callable[[], Any], engine: str, mix: Mix) -> None:
        """`connect` gives a PyMySQL connection with autocommit to the database of the tables."""
        self._connect = connect
        self._engine = engine.lower()
        self._mix = mix
        self._poll = select.epoll()
        # By descriptor.
        self._sessions: dict[int, Session] = {}
        # Numbers of sessions whose connection was killed, until they get another one.
        self._lost: list[int] = []
        # The sessions that may be killed.
        self._doomed: list[Session] = []
        self._killer: Session | None = None
        self._kills = 0
        self._counts = Counts()
        # OKs of plain and hasty sessions, and of each killed session, since `create`.
        self._listed = 0
        self._own: Counter[int] = Counter()
        # Statements of each killed session whose outcome is unknown.
        self._unknown: Counter[int] = Counter()
        self._random = Random(mix.sessions)

    def __enter__(self) -> HotRow:
        return self

    def __exit__(self, *failure: object) -> None:
        self.close()

    def create(self) -> None:
        """Creates the hot row, and a row of its own for each session."""
        with contextlib.closing(self._connect()) as connection, connection.cursor() as cursor:
            cursor.execute("DROP TABLE IF EXISTS hot, own")
            for table in ("hot", "own"):
                cursor.execute(
                    f"CREATE TABLE {table} (id INT PRIMARY KEY, n BIGINT NOT NULL) "
                    f"ENGINE={self._engine.upper()}"
                )
            cursor.execute("INSERT INTO hot VALUES (1, 0)")
            rows = [(number, 0) for number in range(self._mix.sessions)]
            cursor.executemany("INSERT INTO own VALUES (%s, %s)", rows)

    def connect(self) -> None:
        """Connects all sessions."""
        for number in range(self._mix.sessions):
            self._open(number)
        if self._mix.kills_per_second > 0:
            self._killer = self._session(KILLER, Kind.KILLER, "")

    def round(
        self,
        lead: float,
        seconds: float,
        processor_seconds: Callable[[], float] = lambda: 0.0,
        drain: bool = True,
    ) -> Round:
        """Updates for `lead` seconds, then for the measured ones; then waits for all answers.

        `processor_seconds` gives the processor time that the server has used so far. Without
        `drain` the statements under way are answered in the next round.
        """
        self._doomed = [each for each in self._sessions.values() if each.kind is Kind.KILLED]
        for session in list(self._sessions.values()):
            if session.kind is not Kind.KILLER and not session.began:
                self._send(session)
        self._work(time.monotonic() + lead)
        self._counts = counts = Counts()
        began, cpu, own = time.monotonic(), processor_seconds(), time.process_time()
        self._work(began + seconds)
        ended = time.monotonic()
        server, client = processor_seconds() - cpu, time.process_time() - own
        # Answers of the drain do not belong to the round.
        self._counts = Counts()
        drained = self._drain() if drain else 0.0
        return Round(
            ended - began,
            counts.commits,
            counts.latencies.summary(),
            counts.errors,
            server,
            client,
            drained,
        )

    def check(self) -> list[str]:
        """Compares the rows with the answers; returns what is wrong, a line each."""
        with contextlib.closing(self._connect()) as connection, connection.cursor() as cursor:
            cursor.execute("SELECT n FROM hot")
            ((hot,),) = cursor.fetchall()
            cursor.execute("SELECT id, n FROM own")
            own = dict(cursor.fetchall())
        wrong = []
        if hot != self._listed + sum(own.values()):
            wrong.append(
                f"the hot row counts {hot}; {self._listed} commits of plain and hasty sessions and "
                f"{sum(own.values())} of killed ones are known"
            )
        for number, count in own.items():
            least = self._own[number]
            if not least <= count <= least + self._unknown[number]:
                wrong.append(
                    f"session {number} counts {count} commits; it has {least} answers and "
                    f"{self._unknown[number]} of which nothing is known"
                )
        return wrong

    def close(self) -> None:
        """Closes all connections."""
        for session in self._sessions.values():
            self._shut(session)
        self._sessions = {}
        self._poll.close()

    def _open(self, number: int) -> None:
        kind = self._mix.kind(number)
        statement = _UPDATE_BOTH.format(number) if kind is Kind.KILLED else _UPDATE
        session = self._session(number, kind, statement)
        if kind is Kind.HASTY:
            # The blocking calls of PyMySQL come before the first packet of our own.
            session.socket.setblocking(True)
            with session.connection.cursor() as cursor:
                cursor.execute(f"SET SESSION {self._engine}_lock_wait_timeout = {HASTY_SECONDS}")
            session.socket.setblocking(False)

    def _session(self, number: int, kind: Kind, statement: str) -> Session:
        connection = self._connect()
        # PyMySQL has no public way to its socket. All answers so far have been read from it.
        sock: socket.socket = connection._sock
        sock.setblocking(False)
        session = Session(
            number, kind, query_packet(statement), connection, sock, connection.thread_id()
        )
        self._sessions[sock.fileno()] = session
        self._poll.register(sock.fileno(), select.EPOLLIN)
        return session

    @staticmethod
    def _shut(session: Session) -> None:
        with contextlib.suppress(OSError, pymysql.Error):
            session.socket.setblocking(True)
            session.connection.close()

    def _send(self, session: Session) -> None:
        session.began = time.monotonic()
        try:
            # A packet is smaller than any socket buffer, and the buffer is empty.
            session.socket.send(session.packet)
        except ConnectionError:
            self._lose(session)

    def _work(self, until: float) -> None:
        """Reads answers, and sends a session's next statement for each, until the time."""
        pause = 1 / self._mix.kills_per_second if self._killer else float("inf")
        kill_at = time.monotonic() + pause
        while (now := time.monotonic()) < until:
            if now >= kill_at:
                self._kill()
                kill_at = now + pause
            for descriptor, _ in self._poll.poll(min(until, kill_at) - now):
                session = self._sessions[descriptor]
                if self._receive(session) and session.kind is not Kind.KILLER:
                    self._send(session)

    def _kill(self) -> None:
        """Sends a kill of a random session, unless the last one has no answer yet."""
        if self._killer is None or self._killer.began or not self._doomed:
            return
        self._kills += 1
        what = "KILL QUERY" if self._kills % CONNECTION_KILLS else "KILL"
        chosen = self._random.choice(self._doomed)
        self._killer.packet = query_packet(f"{what} {chosen.thread_id}")
        self._send(self._killer)

    def _drain(self) -> float:
        """Reads the answers of all statements under way; returns the seconds that this takes."""
        began = time.monotonic()
        while any(session.began for session in self._sessions.values()):
            if time.monotonic() - began > DRAIN_SECONDS_MAX:
                raise LabError(f"statements have no answer after {DRAIN_SECONDS_MAX:.0f} s")
            for descriptor, _ in self._poll.poll(1.0):
                self._receive(self._sessions[descriptor])
        seconds = time.monotonic() - began
        while self._lost:
            self._open(self._lost.pop())
        return seconds

    def _receive(self, session: Session) -> bool:
        """Reads what is there; whether the session may send its next statement."""
        try:
            data = session.socket.recv(_READ_BYTES)
        except ConnectionError:
            data = b""
        if not data:
            self._lose(session)
            return False
        session.received += data
        error = reply_error(session.received)
        if error is None:
            return False
        session.received = b""
        if error == CONNECTION_KILLED or not session.began:
            # The server tells a killed connection so, and then closes it.
            self._lose(session, error)
            return False
        self._answered(session, error)
        return True

    def _answered(self, session: Session, error: int) -> None:
        """Counts the answer to a session's statement."""
        seconds, session.began = time.monotonic() - session.began, 0.0
        if session.kind is Kind.KILLER:
            if error not in (0, NO_SUCH_THREAD):
                raise LabError(f"a kill met error {error}")
        elif error == 0:
            self._counts.commits += 1
            self._counts.latencies.add(seconds * 1e6)
            if session.kind is Kind.KILLED:
                self._own[session.number] += 1
            else:
                self._listed += 1
        elif error == TIMED_OUT:
            self._counts.errors[error] += 1
        elif error == QUERY_KILLED and session.kind is Kind.KILLED:
            self._counts.errors[error] += 1
            self._unknown[session.number] += 1
        else:
            raise LabError(f"a {session.kind.value} session met error {error}")

    def _lose(self, session: Session, error: int = NO_ANSWER) -> None:
        """Closes a killed session, which gets another connection."""
        if session.kind is not Kind.KILLED:
            raise LabError(f"a {session.kind.value} session has lost its connection: {error}")
        if session.began:
            self._unknown[session.number] += 1
            self._counts.errors[error] += 1
        self._poll.unregister(session.socket.fileno())
        del self._sessions[session.socket.fileno()]
        self._doomed.remove(session)
        self._shut(session)
        self._lost.append(session.number)
