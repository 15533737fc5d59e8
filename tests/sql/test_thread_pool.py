"""Commits in the server's thread pool, where a session that waits for the log takes no thread."""

from __future__ import annotations

import functools
import shutil
import struct
import subprocess
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from queue import Empty, Queue
from typing import Any

import pymysql
import pytest
from server import ENGINE, IS_FIRN, Server, scratch_root

pytestmark = pytest.mark.skipif(not IS_FIRN, reason="holds up the engine's log")

Make = Callable[..., Server]

SESSIONS = 20
POOL = ("--thread-handling=pool-of-threads", "--thread-pool-size=1")
# Fewer than the sessions that commit.
FEW_THREADS = "--thread-pool-max-threads=8"
SECONDS_MAX = 60.0
PASSES, WAITS, FAILS = range(3)
LOST = (2006, 2013)


@functools.cache
def _library() -> Path:
    compiler = shutil.which("cc")
    if compiler is None:
        pytest.skip("needs a C compiler")
    library = scratch_root() / "log_gate.so"
    source = Path(__file__).with_name("log_gate.c")
    subprocess.run([compiler, "-O1", "-shared", "-fPIC", "-o", library, source, "-ldl"], check=True)
    return library


class LogGate:
    """Lets the writes of a server's log pass, wait or fail (see log_gate.c)."""

    def __init__(self, server: Server) -> None:
        self.control = server.directory / "log_gate"
        self.control.write_bytes(struct.pack("=II", PASSES, 0))
        server.environment |= {
            "LD_PRELOAD": str(_library()),
            "FIRN_LOG_GATE": str(self.control),
        }
        server.restart()

    def set(self, meets: int) -> None:
        with self.control.open("r+b") as file:
            file.write(struct.pack("=I", meets))

    def waiting(self) -> int:
        return int(struct.unpack("=II", self.control.read_bytes())[1])


class Sessions:
    """Sessions that each commit once, and their answers: the error's number, or `None`."""

    def __init__(self, server: Server, statements: Callable[[int], list[str]]) -> None:
        self.answers: Queue[tuple[int, int | None]] = Queue()
        self.threads: list[threading.Thread] = []
        self.connections: list[pymysql.Connection[Any]] = []
        for number in range(SESSIONS):
            flags = pymysql.constants.CLIENT.MULTI_STATEMENTS
            session = server.connect("d", autocommit=True, client_flag=flags)
            self.connections.append(session)
            arguments = (session, number, statements(number))
            self.threads.append(threading.Thread(target=self._commit, args=arguments))

    def _commit(self, session: pymysql.Connection[Any], number: int, statements: list[str]) -> None:
        try:
            with session.cursor() as cursor:
                for statement in statements:
                    cursor.execute(statement)
                    while cursor.nextset():
                        pass
            self.answers.put((number, None))
        except pymysql.err.MySQLError as error:
            self.answers.put((number, error.args[0]))

    def __enter__(self) -> Sessions:
        for thread in self.threads:
            thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        for thread in self.threads:
            thread.join()

    def all(self) -> dict[int, int | None]:
        return dict(self.answers.get(timeout=SECONDS_MAX) for _ in self.threads)


def _wait_until(condition: Callable[[], bool]) -> None:
    deadline = time.monotonic() + SECONDS_MAX
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.02)


def _autocommit(number: int) -> list[str]:
    return [f"INSERT INTO t VALUES ({number}, 1)"]


def _transaction(number: int) -> list[str]:
    return ["BEGIN", f"INSERT INTO t VALUES ({number}, 1)", "COMMIT"]


def _procedure(number: int) -> list[str]:
    return [f"CALL p({number})"]


def _packet(number: int) -> list[str]:
    return [f"INSERT INTO t VALUES ({number}, 1); DELETE FROM queue WHERE id = {number}"]


@pytest.fixture
def gated(own_server: Make, request: pytest.FixtureRequest) -> Iterator[tuple[Server, LogGate]]:
    server = own_server(*POOL, *getattr(request, "param", []))
    gate = LogGate(server)
    server.query("CREATE DATABASE d")
    server.query(f"CREATE TABLE d.t (id INT PRIMARY KEY, n INT) ENGINE={ENGINE}")
    server.query("CREATE TABLE d.queue (id INT PRIMARY KEY) ENGINE=InnoDB")
    server.query(f"INSERT INTO d.queue SELECT seq FROM seq_0_to_{SESSIONS - 1}")
    server.query(
        "CREATE PROCEDURE d.p(n INT) BEGIN INSERT INTO t VALUES (n, 1); "
        "DELETE FROM queue WHERE id = n; END"
    )
    with ExitStack() as exits:
        exits.callback(gate.set, PASSES)
        yield server, gate


class Reader:
    """A session that reads what the others have made visible."""

    def __init__(self, server: Server) -> None:
        self.session = server.connect("d", autocommit=True)

    def count(self, table: str = "t") -> int:
        with self.session.cursor() as cursor:
            cursor.execute(f"SELECT COUNT(*) FROM {table}")
            return int(cursor.fetchall()[0][0])

    def wait_for(self, rows: int) -> None:
        _wait_until(lambda: self.count() == rows)


@pytest.mark.parametrize("gated", [[FEW_THREADS]], indirect=True, ids=["few_threads"])
@pytest.mark.parametrize("statements", [_autocommit, _transaction])
def test_a_commit_takes_no_thread_and_is_answered_when_it_is_durable(
    gated: tuple[Server, LogGate], statements: Callable[[int], list[str]]
) -> None:
    server, gate = gated
    reader = Reader(server)
    gate.set(WAITS)
    with Sessions(server, statements) as sessions:
        # The rows are visible before they are durable, to a session that finds a free thread.
        reader.wait_for(SESSIONS)
        assert gate.waiting() > 0
        with pytest.raises(Empty):
            sessions.answers.get(timeout=0.5)
        gate.set(PASSES)
        assert sessions.all() == dict.fromkeys(range(SESSIONS))
    server.crash_and_recover()
    assert server.query("SELECT COUNT(*) FROM d.t") == ((SESSIONS,),)


@pytest.mark.parametrize("statements", [_procedure, _packet])
def test_nothing_follows_a_commit_that_is_not_durable(
    gated: tuple[Server, LogGate], statements: Callable[[int], list[str]]
) -> None:
    """Otherwise a crash could lose the commit and keep what another engine did after it."""
    server, gate = gated
    reader = Reader(server)
    gate.set(WAITS)
    with Sessions(server, statements) as sessions:
        _wait_until(lambda: reader.count() > 0 and gate.waiting() > 0)
        time.sleep(0.3)
        assert reader.count("queue") == SESSIONS
        gate.set(PASSES)
        assert sessions.all() == dict.fromkeys(range(SESSIONS))
    assert reader.count("queue") == 0


def test_sessions_that_wait_for_the_log_are_killed_or_leave(gated: tuple[Server, LogGate]) -> None:
    server, gate = gated
    reader = Reader(server)
    gate.set(WAITS)
    with Sessions(server, _autocommit) as sessions:
        reader.wait_for(SESSIONS)
        for number, session in enumerate(sessions.connections):
            if number % 2:
                server.query(f"KILL {session.thread_id()}")
            else:
                session._sock.shutdown(2)
        assert reader.count() == SESSIONS
        gate.set(PASSES)
        sessions.all()
    # This commit is durable, so those before it are.
    server.query("INSERT INTO d.t VALUES (1000, 1)")
    server.crash_and_recover()
    assert server.query("SELECT COUNT(*) FROM d.t") == ((SESSIONS + 1,),)


def test_a_stop_waits_for_the_log(gated: tuple[Server, LogGate]) -> None:
    server, gate = gated
    reader = Reader(server)
    gate.set(WAITS)
    with Sessions(server, _autocommit) as sessions:
        reader.wait_for(SESSIONS)
        server.query("SHUTDOWN")
        time.sleep(0.3)
        gate.set(PASSES)
        sessions.all()
        assert server.process is not None
        assert server.process.wait(SECONDS_MAX) == 0
    server.restart()
    assert server.query("SELECT COUNT(*) FROM d.t") == ((SESSIONS,),)


def test_no_commit_is_answered_that_the_log_has_lost(gated: tuple[Server, LogGate]) -> None:
    server, gate = gated
    server.query("INSERT INTO d.t VALUES (1000, 1)")
    reader = Reader(server)
    gate.set(WAITS)
    with Sessions(server, _transaction) as sessions:
        reader.wait_for(SESSIONS + 1)
        gate.set(FAILS)
        answers = sessions.all()
        # The rows are hidden from readers: they may be gone after the restart.
        assert reader.count() == 1
    # Those whose thread waited get the reason; the connections of the others end.
    assert None not in answers.values(), answers
    assert sum(answer in LOST for answer in answers.values()) > SESSIONS / 2, answers
    assert "the log has failed" in server.log()
    gate.set(PASSES)
    server.crash_and_recover()
    assert server.query("SELECT n FROM d.t WHERE id = 1000") == ((1,),)
    server.query("INSERT INTO d.t VALUES (1001, 1)")
