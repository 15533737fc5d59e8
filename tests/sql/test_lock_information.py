"""Reports on transactions and locks: information_schema, SHOW ENGINE FIRN STATUS, the error log."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from typing import Any, TypeAlias

import pymysql
import pytest
from server import ENGINE, Server

pytestmark = pytest.mark.skipif(ENGINE.upper() != "FIRN", reason="about tables of FIRN")

Session: TypeAlias = "pymysql.Connection[Any]"


def _run(session: Session, *statements: str) -> None:
    with session.cursor() as cursor:
        for statement in statements:
            cursor.execute(statement)


def _thread(session: Session) -> int:
    return int(session.thread_id())


def _until(condition: Callable[[], Any]) -> Any:
    """Waits until `condition` returns something true; returns that."""
    begun = time.monotonic()
    while not (value := condition()):
        assert time.monotonic() - begun < 60
        time.sleep(0.02)
    return value


class _Background:
    """A statement that another thread executes, with the error that ended it."""

    def __init__(self, session: Session, statement: str) -> None:
        self.error: int | None = None
        self._thread = threading.Thread(target=self._execute, args=(session, statement))
        self._thread.start()

    def _execute(self, session: Session, statement: str) -> None:
        try:
            _run(session, statement)
        except pymysql.err.MySQLError as error:
            self.error = error.args[0]

    def join(self) -> int | None:
        self._thread.join(timeout=60)
        assert not self._thread.is_alive()
        return self.error


def _make_table(server: Server, database: str) -> None:
    session = server.connect(database)
    _run(
        session,
        "CREATE TABLE t (id INT PRIMARY KEY, name VARCHAR(20) NOT NULL, v INT, UNIQUE (name)) "
        f"ENGINE={ENGINE}",
        "INSERT INTO t VALUES (1, 'one', 1), (5, 'five', 5), (9, 'nine', 9)",
    )
    session.close()


def _status(server: Server) -> str:
    return str(server.query("SHOW ENGINE FIRN STATUS")[0][2])


def test_a_transaction_its_locks_and_who_waits_for_it(server: Server, database: str) -> None:
    _make_table(server, database)
    holder, waiter = server.connect(database), server.connect(database)
    _run(
        holder,
        "SET TRANSACTION ISOLATION LEVEL SERIALIZABLE",
        "BEGIN",
        "UPDATE t SET v = 50 WHERE id = 5",
        "SELECT * FROM t WHERE id > 5 LOCK IN SHARE MODE",
    )
    _run(waiter, "BEGIN")
    wait = _Background(waiter, "INSERT INTO t VALUES (7, 'seven', 7)")
    waits = _until(
        lambda: server.query(
            "SELECT REQUESTING_MYSQL_THREAD_ID, REQUESTED_LOCK_MODE, LOCK_SCHEMA, LOCK_TABLE, "
            "LOCK_INDEX, LOCK_DATA, BLOCKING_MYSQL_THREAD_ID, "
            "ABS(TIMESTAMPDIFF(SECOND, WAIT_STARTED, NOW())) < 600 "
            "FROM information_schema.FIRN_LOCK_WAITS"
        )
    )
    assert waits == (
        (
            _thread(waiter),
            "INSERT_INTENTION",
            database,
            "t",
            "PRIMARY",
            "id = 7",
            _thread(holder),
            1,
        ),
    )
    transactions = server.query(
        "SELECT TRX_MYSQL_THREAD_ID, TRX_STATE, TRX_ISOLATION_LEVEL, TRX_QUERY, TRX_ROWS_MODIFIED, "
        "TRX_ROWS_LOCKED, TRX_GAPS_LOCKED, TRX_WAIT_STARTED IS NOT NULL, "
        "ABS(TIMESTAMPDIFF(SECOND, TRX_STARTED, NOW())) < 600 "
        "FROM information_schema.FIRN_TRX "
        f"WHERE TRX_MYSQL_THREAD_ID IN ({_thread(holder)}, {_thread(waiter)}) "
        "ORDER BY TRX_MYSQL_THREAD_ID"
    )
    assert transactions == (
        (_thread(holder), "RUNNING", "SERIALIZABLE", None, 1, 2, 1, 0, 1),
        (
            _thread(waiter),
            "LOCK WAIT",
            "REPEATABLE READ",
            "INSERT INTO t VALUES (7, 'seven', 7)",
            0,
            0,
            0,
            1,
            1,
        ),
    )
    locks = server.query(
        "SELECT LOCK_MODE, LOCK_TABLE, LOCK_INDEX, LOCK_ROWS, LOCK_DATA, LOCK_END "
        f"FROM information_schema.FIRN_LOCKS WHERE LOCK_MYSQL_THREAD_ID = {_thread(holder)} "
        "ORDER BY 1, 5"
    )
    assert locks == (
        ("GAP", "t", "PRIMARY", 0, "after id = 5", "the end"),
        ("S", "t", "PRIMARY", 1, "id = 9", None),
        ("X", "t", "PRIMARY", 1, "id = 5", None),
    )
    status = _status(server)
    assert f"of session {_thread(holder)}, active for" in status
    assert "SERIALIZABLE: 2 rows and 1 gaps locked, 1 rows changed" in status
    assert f"insert intention on {database}/t.PRIMARY (id = 7), blocked by" in status
    assert "INSERT INTO t VALUES (7, 'seven', 7)" in status
    _run(holder, "ROLLBACK")
    assert wait.join() is None
    _run(waiter, "ROLLBACK")
    threads = f"({_thread(holder)}, {_thread(waiter)})"
    for table, column in (
        ("FIRN_LOCK_WAITS", "REQUESTING_MYSQL_THREAD_ID"),
        ("FIRN_LOCKS", "LOCK_MYSQL_THREAD_ID"),
        ("FIRN_TRX", "TRX_MYSQL_THREAD_ID"),
    ):
        of_them = f"SELECT * FROM information_schema.{table} WHERE {column} IN {threads}"
        assert server.query(of_them) == ()
    holder.close()
    waiter.close()


def _deadlock(server: Server, database: str) -> tuple[Session, Session, list[int | None]]:
    """Makes two sessions deadlock; returns them, and the error numbers of their last statements."""
    first, second = server.connect(database), server.connect(database)
    _run(first, "BEGIN", "UPDATE t SET v = 0 WHERE id = 1", "UPDATE t SET v = 0 WHERE id = 9")
    _run(second, "BEGIN", "UPDATE t SET v = 0 WHERE id = 5")
    one = _Background(first, "DELETE FROM t WHERE name = 'five'")
    _until(lambda: server.query("SELECT 1 FROM information_schema.FIRN_LOCK_WAITS"))
    two = _Background(second, "SELECT *\nFROM t WHERE id = 1 FOR UPDATE")
    return first, second, [two.join(), one.join()]


def test_a_deadlock_is_shown_with_its_statements(server: Server, database: str) -> None:
    _make_table(server, database)
    server.query("SET GLOBAL firn_print_all_deadlocks = 1")
    newest = "SELECT COALESCE(MAX(DEADLOCK_ID), 0) FROM information_schema.FIRN_DEADLOCKS"
    before = server.query(newest)
    printed_before = server.log().count("FIRN: deadlock ")
    first, second, errors = _deadlock(server, database)
    server.query("SET GLOBAL firn_print_all_deadlocks = 0")
    assert errors == [1213, None]
    after = server.query(
        "SELECT TRX_MYSQL_THREAD_ID, IS_VICTIM, REQUESTED_LOCK_MODE, LOCK_SCHEMA, LOCK_TABLE, "
        "LOCK_INDEX, LOCK_DATA, TRX_QUERY, ABS(TIMESTAMPDIFF(SECOND, DEADLOCK_TIME, NOW())) < 600 "
        "FROM information_schema.FIRN_DEADLOCKS WHERE DEADLOCK_ID = "
        "(SELECT MAX(DEADLOCK_ID) FROM information_schema.FIRN_DEADLOCKS) ORDER BY IS_VICTIM"
    )
    read = "SELECT *\nFROM t WHERE id = 1 FOR UPDATE"
    delete = "DELETE FROM t WHERE name = 'five'"
    assert after == (
        (_thread(first), "NO", "X", database, "t", "PRIMARY", "id = 5", delete, 1),
        (_thread(second), "YES", "X", database, "t", "PRIMARY", "id = 1", read, 1),
    )
    shown = _status(server).split("LATEST DEADLOCK")[1]
    for text in (shown, server.log()):
        assert f"exclusive lock on {database}/t.PRIMARY (id = 1), blocked by transaction" in text
        assert "; rolled back" in text
        assert "SELECT * FROM t WHERE id = 1 FOR UPDATE" in text
        assert delete in text
    printed = server.log().count("FIRN: deadlock ")
    assert printed == printed_before + 1
    first.close()
    second.close()
    _deadlock(server, database)[0].close()
    assert server.log().count("FIRN: deadlock ") == printed
    assert server.query(newest) == ((before[0][0] + 2,),)


def test_without_detection_a_deadlock_ends_by_its_timeout(server: Server, database: str) -> None:
    _make_table(server, database)
    server.query("SET GLOBAL firn_deadlock_detect = OFF")
    try:
        first, second = server.connect(database), server.connect(database)
        _run(first, "SET firn_lock_wait_timeout = 1", "BEGIN", "UPDATE t SET v = 0 WHERE id = 1")
        _run(second, "BEGIN", "UPDATE t SET v = 0 WHERE id = 5")
        two = _Background(second, "UPDATE t SET v = 0 WHERE id = 1")
        _until(lambda: server.query("SELECT 1 FROM information_schema.FIRN_LOCK_WAITS"))
        timeouts = _counter(server, "lock_timeouts")
        one = _Background(first, "UPDATE t SET v = 0 WHERE id = 5")
        assert one.join() == 1205
        assert _counter(server, "lock_timeouts") == timeouts + 1
        first.close()
        assert two.join() is None
        second.close()
    finally:
        server.query("SET GLOBAL firn_deadlock_detect = ON")


def _counter(server: Server, name: str) -> int:
    return int(server.query(f"SHOW STATUS LIKE 'Firn_{name}'")[0][1])


def test_an_old_snapshot_is_shown_and_warned_of(server: Server, database: str) -> None:
    _make_table(server, database)
    assert _counter(server, "history_length") == 0
    reader, writer = server.connect(database), server.connect(database)
    _run(reader, "START TRANSACTION WITH CONSISTENT SNAPSHOT")
    for value in range(20):
        _run(writer, f"UPDATE t SET v = {value} WHERE id = 5")
    assert _counter(server, "history_length") == 20
    taken = server.query(
        "SELECT TRX_SNAPSHOT_COMMITS, ABS(TIMESTAMPDIFF(SECOND, TRX_SNAPSHOT_TAKEN, NOW())) < 600 "
        f"FROM information_schema.FIRN_TRX WHERE TRX_MYSQL_THREAD_ID = {_thread(reader)}"
    )
    assert taken == ((20, 1),)
    warning = f"the snapshot of session {_thread(reader)} is "
    assert warning not in server.log()
    server.query("SET GLOBAL firn_snapshot_age_warning = 1")
    try:
        _until(lambda: warning in server.log())
        assert _counter(server, "oldest_snapshot_age") >= 1
        assert "20 commits have changed since" in server.log()
        time.sleep(2.5)
        assert server.log().count(warning) == 1, "one warning for one snapshot"
    finally:
        server.query("SET GLOBAL firn_snapshot_age_warning = 3600")
    _run(reader, "COMMIT")
    assert _counter(server, "history_length") == 0
    assert _counter(server, "oldest_snapshot_age") == 0
    reader.close()
    writer.close()


def test_the_tables_need_the_process_privilege(server: Server, database: str) -> None:
    server.query("CREATE USER IF NOT EXISTS plain@localhost IDENTIFIED BY 'p'")
    server.query(f"GRANT SELECT ON {database}.* TO plain@localhost")
    plain = server.connect(user="plain", password="p")
    for table in ("FIRN_TRX", "FIRN_LOCKS", "FIRN_LOCK_WAITS", "FIRN_DEADLOCKS"):
        with pytest.raises(pymysql.err.OperationalError) as caught:
            _run(plain, f"SELECT * FROM information_schema.{table}")
        assert caught.value.args[0] == 1227
    plain.close()
    server.query("DROP USER plain@localhost")
