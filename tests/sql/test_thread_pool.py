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
# Fewer threads than sessions that commit.
POOL = ("--thread-handling=pool-of-threads", "--thread-pool-size=1", "--thread-pool-max-threads=6")
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
    """What the writes of a server's log meet (see log_gate.c)."""

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
        self.threads = []
        for number in range(SESSIONS):
            session = server.connect("d", autocommit=True)
            arguments = (session, number, statements(number))
            self.threads.append(threading.Thread(target=self._commit, args=arguments))

    def _commit(self, session: pymysql.Connection[Any], number: int, statements: list[str]) -> None:
        try:
            with session.cursor() as cursor:
                for statement in statements:
                    cursor.execute(statement)
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


@pytest.fixture
def gated(own_server: Make) -> Iterator[tuple[Server, LogGate]]:
    server = own_server(*POOL)
    gate = LogGate(server)
    server.query("CREATE DATABASE d")
    server.query(f"CREATE TABLE d.t (id INT PRIMARY KEY, n INT) ENGINE={ENGINE}")
    server.query(
        "CREATE PROCEDURE d.p(n INT) BEGIN INSERT INTO t VALUES (n, 1); "
        "UPDATE t SET n = 2 WHERE id = n; END"
    )
    with ExitStack() as exits:
        exits.callback(gate.set, PASSES)
        yield server, gate


@pytest.mark.parametrize("statements", [_autocommit, _transaction, _procedure])
def test_a_commit_takes_no_thread_and_is_answered_when_it_is_durable(
    gated: tuple[Server, LogGate], statements: Callable[[int], list[str]]
) -> None:
    server, gate = gated
    reader = server.connect("d", autocommit=True)
    gate.set(WAITS)
    with Sessions(server, statements) as sessions:
        # The rows are visible before they are durable, to a session that finds a free thread.
        with reader.cursor() as cursor:

            def rows() -> int:
                cursor.execute("SELECT COUNT(*) FROM t")
                return int(cursor.fetchall()[0][0])

            _wait_until(lambda: rows() == SESSIONS)
        assert gate.waiting() > 0
        with pytest.raises(Empty):
            sessions.answers.get(timeout=0.5)
        gate.set(PASSES)
        assert sessions.all() == dict.fromkeys(range(SESSIONS))
    server.crash_and_recover()
    assert server.query("SELECT COUNT(*) FROM d.t") == ((SESSIONS,),)


def test_no_commit_is_answered_that_the_log_has_lost(gated: tuple[Server, LogGate]) -> None:
    server, gate = gated
    server.query("INSERT INTO d.t VALUES (1000, 1)")
    gate.set(WAITS)
    with Sessions(server, _transaction) as sessions:
        watcher = server.connect("d", autocommit=True)
        with watcher.cursor() as cursor:

            def rows() -> int:
                cursor.execute("SELECT COUNT(*) FROM t")
                return int(cursor.fetchall()[0][0])

            _wait_until(lambda: rows() == SESSIONS + 1)
            gate.set(FAILS)
            answers = sessions.all()
            # The rows are hidden from readers: they may be gone after the restart.
            assert rows() == 1
    assert None not in answers.values(), answers
    # Those whose thread waited get the reason; the connections of the others end.
    assert set(answers.values()) & set(LOST), answers
    assert "the log has failed" in server.log()
    gate.set(PASSES)
    server.crash_and_recover()
    assert server.query("SELECT n FROM d.t WHERE id = 1000") == ((1,),)
    server.query("INSERT INTO d.t VALUES (1001, 1)")
