"""Row locks of statements over a hundred thousand rows, beside InnoDB in one server.

A transaction locks every second number in one statement; other sessions access rows inside,
between and outside. The results are those of InnoDB at READ COMMITTED. At that size Firn keeps the
locks in sorted sets, and locks no row that the statement does not need. The variable
FIRN_TEST_LARGE_ROWS sets the number of rows.
"""

from __future__ import annotations

import os
import re
import threading
import time
from collections.abc import Callable, Iterator
from typing import Any

import pymysql
import pytest
from server import ENGINE, IS_FIRN, Server

ROWS = int(os.environ.get("FIRN_TEST_LARGE_ROWS", "100000"))
WAITED_SECONDS_MAX = 60.0

Session = Any


def _run(session: Session, *statements: str) -> Any:
    """The rows of the last statement, or its error number."""
    result: Any = None
    for sql in statements:
        with session.cursor() as cursor:
            try:
                cursor.execute(sql)
            except pymysql.err.MySQLError as error:
                return f"error {error.args[0]}"
            result = cursor.fetchall() or cursor.rowcount
    return result


@pytest.fixture(scope="module")
def large(shared_server: Any) -> Iterator[Server]:
    """Tables `firn` and `innodb` with the even numbers up to twice ROWS."""
    server = shared_server.get()
    server.query("DROP DATABASE IF EXISTS large")
    server.query("CREATE DATABASE large")
    for table, engine in (("firn", ENGINE), ("innodb", "InnoDB")):
        server.query(
            f"CREATE TABLE large.{table} (id INT PRIMARY KEY, n INT NOT NULL) ENGINE={engine}"
        )
        server.query(f"INSERT INTO large.{table} SELECT 2 * seq, 0 FROM seq_1_to_{ROWS}")
    yield server
    server.query("DROP DATABASE large")


@pytest.fixture
def connect(large: Server) -> Iterator[Callable[[], Session]]:
    """A factory of sessions at READ COMMITTED with a lock wait of a second at most."""
    sessions: list[Session] = []

    def make() -> Session:
        session = large.connect("large")
        sessions.append(session)
        _run(
            session,
            "SET SESSION TRANSACTION ISOLATION LEVEL READ COMMITTED",
            "SET innodb_lock_wait_timeout = 1",
            "SET autocommit = 0",
        )
        if IS_FIRN:
            _run(session, "SET firn_lock_wait_timeout = 1")
        return session

    yield make
    for session in sessions:
        session.close()


def _row_locks(server: Server) -> tuple[int, int, int]:
    """The number of locked rows, how many of them are in sorted sets, and the bytes of the sets."""
    text = server.query("SHOW ENGINE FIRN STATUS")[0][2]
    found = re.search(r"rows locked (\d+), (\d+) of them .* sets of (\d+) bytes", text)
    assert found, text
    return int(found[1]), int(found[2]), int(found[3])


LARGE = {
    "update": "UPDATE {t} SET n = n + 1",
    "delete": "DELETE FROM {t}",
    "select for update": "SELECT COUNT(*) FROM (SELECT id FROM {t} FOR UPDATE) x",
    # The statement inserts the odd numbers between the existing rows.
    "insert select": "INSERT INTO {t} SELECT 2 * seq - 1, 7 FROM seq_1_to_{rows}",
}

# Statements of another session while the large transaction is open. Each is in a transaction of its
# own, which is rolled back.
OTHERS = [
    "SELECT n FROM {t} WHERE id = {rows} FOR UPDATE NOWAIT",
    "SELECT n FROM {t} WHERE id = {rows} LOCK IN SHARE MODE NOWAIT",
    "SELECT n FROM {t} WHERE id = {last} FOR UPDATE",
    "SELECT id FROM {t} WHERE id BETWEEN {rows} - 10 AND {rows} + 10 FOR UPDATE SKIP LOCKED",
    "SELECT n FROM {t} WHERE id = {rows}",
    "UPDATE {t} SET n = 5 WHERE id = 2",
    "DELETE FROM {t} WHERE id = {rows} + 2",
    "INSERT INTO {t} VALUES ({rows} + 1, 1)",
    "INSERT INTO {t} VALUES ({rows}, 1)",
    "INSERT INTO {t} VALUES ({last} + 3, 1)",
    "INSERT INTO {t} VALUES (-5, 1)",
]


@pytest.mark.parametrize("name", LARGE)
def test_others_meet_the_same_locks_as_in_innodb(
    name: str, large: Server, connect: Callable[[], Session]
) -> None:
    holder, other = connect(), connect()
    results = {}
    for table in ("firn", "innodb"):
        done = _run(holder, LARGE[name].format(t=table, rows=ROWS))
        assert done in (ROWS, ((ROWS,),)), done
        if table == "firn" and IS_FIRN:
            rows, merged, size = _row_locks(large)
            assert rows == ROWS
            assert merged > ROWS - 1000
            assert size < 4096, "kilobytes, not a heap object each"
        results[table] = []
        for sql in OTHERS:
            got = _run(other, sql.format(t=table, rows=ROWS, last=2 * ROWS))
            results[table].append((sql, got))
            _run(other, "ROLLBACK")
        _run(holder, "ROLLBACK")
        if table == "firn" and IS_FIRN:
            assert _row_locks(large) == (0, 0, 0)
    assert results["firn"] == results["innodb"]
    counts = [_run(holder, f"SELECT COUNT(*), SUM(n) FROM {t}") for t in ("firn", "innodb")]
    assert counts[0] == counts[1]
    assert counts[0][0][0] == ROWS


def _until_waiting(server: Server) -> None:
    before = time.monotonic()
    while True:
        rows = server.query(
            "SELECT COUNT(*) FROM information_schema.processlist WHERE db = 'large' "
            "AND command = 'Query' AND id <> CONNECTION_ID()"
        )
        if rows[0][0] > 0:
            return
        assert time.monotonic() - before < WAITED_SECONDS_MAX
        time.sleep(0.01)


@pytest.mark.parametrize("table", ["firn", "innodb"])
def test_a_waiter_goes_on_when_the_large_statement_ends(
    table: str, large: Server, connect: Callable[[], Session]
) -> None:
    holder, other = connect(), connect()
    _run(other, "SET innodb_lock_wait_timeout = 60")
    if IS_FIRN:
        _run(other, "SET firn_lock_wait_timeout = 60")
    assert _run(holder, f"UPDATE {table} SET n = n + 1") == ROWS
    got: list[Any] = []
    sql = f"UPDATE {table} SET n = n + 10 WHERE id = 77778"
    thread = threading.Thread(target=lambda: got.append(_run(other, sql)))
    thread.start()
    _until_waiting(large)
    _run(holder, "COMMIT")
    thread.join(WAITED_SECONDS_MAX)
    assert got == [1]
    _run(other, "COMMIT")
    assert _run(holder, f"SELECT n FROM {table} WHERE id = 77778") == ((11,),)
    assert _run(holder, f"UPDATE {table} SET n = 0") == ROWS
    _run(holder, "COMMIT")


@pytest.mark.parametrize("table", ["firn", "innodb"])
def test_a_deadlock_with_a_large_statement_costs_the_smaller_one(
    table: str, large: Server, connect: Callable[[], Session]
) -> None:
    holder, other, watch = connect(), connect(), connect()
    for session in (holder, other):
        _run(session, "SET innodb_lock_wait_timeout = 60")
        if IS_FIRN:
            _run(session, "SET firn_lock_wait_timeout = 60")
    # Lock the row that the large statement reaches last, so that it waits when it has locked all
    # others.
    assert _run(other, f"UPDATE {table} SET n = 3 WHERE id = {2 * ROWS}") == 1
    got: list[Any] = []
    sql = f"UPDATE {table} SET n = n + 1"
    thread = threading.Thread(target=lambda: got.append(_run(holder, sql)))
    thread.start()
    # When the row before the last one is locked, the large statement waits for the last row; the
    # other session then closes the cycle.
    probe = f"SELECT n FROM {table} WHERE id = {2 * ROWS - 2} FOR UPDATE NOWAIT"
    while _run(watch, probe) != "error 1205":
        _run(watch, "ROLLBACK")
        assert thread.is_alive()
    assert _run(other, f"UPDATE {table} SET n = 4 WHERE id = 2000") == "error 1213"
    thread.join(WAITED_SECONDS_MAX)
    assert got == [ROWS]
    _run(holder, "ROLLBACK")
    assert _run(holder, f"SELECT SUM(n) FROM {table}")[0][0] == 0
