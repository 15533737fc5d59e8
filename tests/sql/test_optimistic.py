"""Optimistic tables (FIRN_LOCKING=OPTIMISTIC): nobody waits, and the first committer wins.

InnoDB has no such tables, so the expected results are written here. Each test runs its sessions in
one thread with a lock timeout of one second: a statement that waited for another session would
fail.
"""

from __future__ import annotations

import contextlib
import subprocess
import threading
import time
from collections.abc import Callable, Iterator
from typing import Any, TypeAlias

import pymysql
import pytest
from server import IS_FIRN, REPOSITORY, Server, free_port

pytestmark = pytest.mark.skipif(not IS_FIRN, reason="about optimistic tables of FIRN")

Session: TypeAlias = "pymysql.Connection[Any]"
DEADLOCK, DUPLICATE = 1213, 1062
LEVELS = ["READ COMMITTED", "REPEATABLE READ"]
TABLE = (
    "CREATE TABLE t (id INT PRIMARY KEY, u INT UNIQUE, k INT, v INT, KEY k (k)) "
    "ENGINE=FIRN FIRN_LOCKING=OPTIMISTIC"
)
BINLOG = ["--log-bin=bin", "--binlog-format=ROW", "--server-id=1"]


def _run(session: Session, *statements: str) -> list[tuple[Any, ...]]:
    """Runs the statements. Returns the rows of the last one."""
    rows: list[tuple[Any, ...]] = []
    for sql in statements:
        with session.cursor() as cursor:
            cursor.execute(sql)
            rows = list(cursor.fetchall())
    return rows


def _fails(session: Session, code: int, statement: str) -> None:
    with pytest.raises(pymysql.err.MySQLError) as caught:
        _run(session, statement)
    assert caught.value.args[0] == code, caught.value


def _sessions(server: Server, database: str, level: str, count: int = 2) -> list[Session]:
    sessions = [server.connect(database) for _ in range(count)]
    for session in sessions:
        _run(
            session,
            f"SET SESSION TRANSACTION ISOLATION LEVEL {level}",
            "SET SESSION firn_lock_wait_timeout = 1",
        )
    return sessions


@pytest.fixture(params=LEVELS)
def level(request: pytest.FixtureRequest) -> str:
    """The isolation level."""
    return str(request.param)


@pytest.fixture
def pair(server: Server, database: str, level: str) -> Iterator[list[Session]]:
    """Two sessions, and the table with the rows 1 to 5, in which all columns are the id."""
    server.query(TABLE.replace("TABLE t", f"TABLE {database}.t"))
    server.query(f"INSERT INTO {database}.t SELECT seq, seq, seq, seq FROM seq_1_to_5")
    sessions = _sessions(server, database, level)
    waits = server.query("SHOW GLOBAL STATUS LIKE 'Firn_lock_waits'")
    yield sessions
    for session in sessions:
        session.close()
    assert server.query("SHOW GLOBAL STATUS LIKE 'Firn_lock_waits'") == waits, "somebody waited"
    check = server.query(f"CHECK TABLE {database}.t EXTENDED")
    assert check[-1][3] == "OK", check


def _row(session: Session, identity: int) -> tuple[Any, ...] | None:
    rows = _run(session, f"SELECT * FROM t WHERE id = {identity}")
    return rows[0] if rows else None


def test_the_first_committer_wins(pair: list[Session]) -> None:
    one, two = pair
    _run(one, "BEGIN", "UPDATE t SET v = v + 10 WHERE id = 1")
    _run(two, "BEGIN", "UPDATE t SET v = v + 100 WHERE id = 1", "UPDATE t SET v = 0 WHERE id = 2")
    _run(two, "COMMIT")
    _fails(one, DEADLOCK, "COMMIT")
    assert _row(one, 1) == (1, 1, 1, 101)
    # The loser is rolled back whole, and its session goes on.
    _run(one, "BEGIN", "UPDATE t SET v = v + 10 WHERE id = 1", "COMMIT")
    assert _row(two, 1) == (1, 1, 1, 111)
    assert _row(two, 2) == (2, 2, 2, 0)


def test_the_loser_is_rolled_back_whole(pair: list[Session]) -> None:
    one, two = pair
    _run(one, "CREATE TABLE p (id INT PRIMARY KEY) ENGINE=FIRN")
    _run(one, "BEGIN", "INSERT INTO p VALUES (1)", "DELETE FROM t WHERE id = 3")
    _run(one, "INSERT INTO t VALUES (9, 9, 9, 9)")
    _run(two, "UPDATE t SET v = 7 WHERE id = 3")
    _fails(one, DEADLOCK, "COMMIT")
    assert _run(one, "SELECT * FROM p") == []
    assert _row(one, 9) is None
    assert _row(one, 3) == (3, 3, 3, 7)
    # Locks of the pessimistic table are gone, too.
    _run(two, "INSERT INTO p VALUES (1)")


def test_rows_that_differ_do_not_conflict(pair: list[Session]) -> None:
    one, two = pair
    _run(one, "BEGIN", "UPDATE t SET v = 10 WHERE id = 1", "INSERT INTO t VALUES (8, 8, 8, 8)")
    _run(two, "BEGIN", "UPDATE t SET v = 20 WHERE k = 2", "INSERT INTO t VALUES (9, 9, 9, 9)")
    _run(one, "COMMIT")
    _run(two, "COMMIT")
    assert _run(one, "SELECT id, v FROM t WHERE v <> id") == [(1, 10), (2, 20)]
    assert _run(one, "SELECT COUNT(*) FROM t") == [(7,)]


def test_write_skew_on_rows_read_for_update(pair: list[Session]) -> None:
    one, two = pair
    _run(one, "BEGIN", "SELECT v FROM t WHERE id = 1 FOR UPDATE", "UPDATE t SET v = 0 WHERE id = 2")
    _run(two, "BEGIN", "SELECT v FROM t WHERE id = 2 LOCK IN SHARE MODE")
    _run(two, "UPDATE t SET v = 0 WHERE id = 1", "COMMIT")
    _fails(one, DEADLOCK, "COMMIT")
    assert _run(one, "SELECT SUM(v = 0) FROM t") == [(1,)]


def test_a_plain_read_is_not_validated(pair: list[Session]) -> None:
    one, two = pair
    _run(one, "BEGIN", "SELECT v FROM t WHERE id = 1", "UPDATE t SET v = 0 WHERE id = 2")
    _run(two, "UPDATE t SET v = 0 WHERE id = 1")
    _run(one, "COMMIT")
    assert _run(one, "SELECT SUM(v = 0) FROM t") == [(2,)]


def test_rows_that_do_not_match_are_not_validated(pair: list[Session]) -> None:
    one, two = pair
    # v has no index: the statement reads all rows.
    _run(one, "BEGIN", "UPDATE t SET k = 0 WHERE v = 1", "SELECT * FROM t WHERE v = 2 FOR UPDATE")
    _run(two, "UPDATE t SET k = 0 WHERE id IN (3, 4)", "DELETE FROM t WHERE id = 5")
    _run(one, "COMMIT")
    assert _run(one, "SELECT id FROM t WHERE k = 0") == [(1,), (3,), (4,)]


def test_a_row_that_is_missing_stays_missing(pair: list[Session]) -> None:
    one, two = pair
    _run(one, "BEGIN")
    assert _run(one, "SELECT * FROM t WHERE id = 7 FOR UPDATE") == []
    _run(one, "UPDATE t SET v = 0 WHERE id = 1")
    _run(two, "INSERT INTO t VALUES (7, 7, 7, 7)")
    _fails(one, DEADLOCK, "COMMIT")


def test_two_inserts_of_one_key(pair: list[Session]) -> None:
    one, two = pair
    _run(one, "BEGIN", "INSERT INTO t VALUES (7, 70, 7, 1)")
    _run(two, "BEGIN", "INSERT INTO t VALUES (7, 71, 7, 2)")
    _run(one, "COMMIT")
    _fails(two, DEADLOCK, "COMMIT")
    # Now it is visible.
    _fails(two, DUPLICATE, "INSERT INTO t VALUES (7, 72, 7, 3)")
    assert _row(two, 7) == (7, 70, 7, 1)


def test_two_inserts_of_one_unique_value(pair: list[Session]) -> None:
    one, two = pair
    _run(one, "BEGIN", "INSERT INTO t VALUES (7, 70, 7, 1)")
    _run(two, "BEGIN", "INSERT INTO t VALUES (8, 70, 8, 2)")
    _run(two, "COMMIT")
    _fails(one, DEADLOCK, "COMMIT")
    _fails(one, DUPLICATE, "INSERT INTO t VALUES (9, 70, 9, 3)")
    # NULLs are never equal.
    _run(one, "BEGIN", "INSERT INTO t VALUES (10, NULL, 1, 1)")
    _run(two, "INSERT INTO t VALUES (11, NULL, 1, 1)")
    _run(one, "COMMIT")


def test_an_update_to_a_unique_value_that_another_takes(pair: list[Session]) -> None:
    one, two = pair
    _run(one, "BEGIN", "UPDATE t SET u = 50 WHERE id = 1")
    _run(two, "UPDATE t SET u = 50 WHERE id = 2")
    _fails(one, DEADLOCK, "COMMIT")
    # A value that was given away is free again.
    _run(one, "BEGIN", "UPDATE t SET u = 2 WHERE id = 1", "COMMIT")
    assert _run(one, "SELECT id FROM t WHERE u = 2") == [(1,)]
    # Its own row keeps the value while it moves to another primary key.
    _run(one, "BEGIN", "UPDATE t SET id = 20 WHERE id = 1", "COMMIT")
    assert _run(one, "SELECT id FROM t WHERE u = 2") == [(20,)]


def test_unique_values_change_hands_in_one_transaction(pair: list[Session]) -> None:
    one, _ = pair
    _run(one, "BEGIN", "UPDATE t SET u = NULL WHERE id = 1", "UPDATE t SET u = 1 WHERE id = 2")
    _run(one, "UPDATE t SET u = 2 WHERE id = 1", "COMMIT")
    assert _run(one, "SELECT id, u FROM t WHERE u < 3 ORDER BY u") == [(2, 1), (1, 2)]


@pytest.mark.parametrize("first", ["DELETE FROM t WHERE id = 1", "UPDATE t SET v = 5 WHERE id = 1"])
@pytest.mark.parametrize(
    "second",
    [
        "DELETE FROM t WHERE id = 1",
        "UPDATE t SET id = 6 WHERE id = 1",
        "REPLACE t VALUES (1,1,1,9)",
    ],
)
def test_delete_and_update(pair: list[Session], first: str, second: str) -> None:
    one, two = pair
    _run(one, "BEGIN", first)
    _run(two, "BEGIN", second)
    _run(one, "COMMIT")
    _fails(two, DEADLOCK, "COMMIT")
    expected = None if first.startswith("DELETE") else (1, 1, 1, 5)
    assert _row(two, 1) == expected


def test_duplicates_that_are_replaced_or_updated(pair: list[Session]) -> None:
    one, two = pair
    update = "INSERT INTO t VALUES (1, 1, 1, 1) ON DUPLICATE KEY UPDATE v = v + 1"
    _run(one, update)
    assert _row(one, 1) == (1, 1, 1, 2)
    _run(one, "BEGIN", update)
    _run(two, "BEGIN", update, "COMMIT")
    _fails(one, DEADLOCK, "COMMIT")
    _run(one, "BEGIN", "REPLACE INTO t VALUES (8, 2, 8, 8)")
    _run(two, "UPDATE t SET v = 5 WHERE id = 2")
    _fails(one, DEADLOCK, "COMMIT")
    _run(one, "BEGIN", "INSERT IGNORE INTO t VALUES (3, 33, 3, 3)", "DELETE FROM t WHERE id = 4")
    _run(two, "DELETE FROM t WHERE id = 3")
    # The ignored duplicate has decided what the transaction did.
    _fails(one, DEADLOCK, "COMMIT")
    assert _row(one, 1) == (1, 1, 1, 3)
    assert _row(one, 2) == (2, 2, 2, 5)


def test_what_a_statement_sees(server: Server, database: str, pair: list[Session]) -> None:
    one, two = pair
    repeatable = _run(one, "SELECT @@tx_isolation") == [("REPEATABLE-READ",)]
    _run(one, "BEGIN", "SELECT * FROM t")
    _run(two, "UPDATE t SET v = 100 WHERE id = 1")
    _run(one, "UPDATE t SET v = v + 1 WHERE id = 1")
    assert _row(one, 1) == (1, 1, 1, 2 if repeatable else 101)
    if repeatable:
        _fails(one, DEADLOCK, "COMMIT")
    else:
        _run(one, "COMMIT")
        assert _row(one, 1) == (1, 1, 1, 101)


def test_the_plain_reads_of_a_statement_that_writes_see_one_state(
    server: Server, database: str
) -> None:
    """The first row that the statement writes does not change what its subquery sees."""
    one, two = _sessions(server, database, "READ COMMITTED")
    _run(one, TABLE, "CREATE TABLE p (id INT PRIMARY KEY, v INT) ENGINE=FIRN")
    _run(one, "INSERT INTO p VALUES (1, 1), (2, 2), (5, 5)")
    assert _run(two, "SELECT GET_LOCK('first row', 10)") == [(1,)]
    # The subquery is evaluated for each row, and then the statement waits for the other session.
    copy = (
        "INSERT INTO t SELECT x.id, NULL, (SELECT y.v FROM p y WHERE y.id = 5 + x.id * 0), "
        "GET_LOCK('first row', 10) FROM p x WHERE x.id < 3 ORDER BY x.id"
    )
    copying = threading.Thread(target=_run, args=(one, copy))
    copying.start()
    waits = "SELECT COUNT(*) FROM information_schema.processlist WHERE state = 'User lock'"
    while _run(two, waits) != [(1,)]:
        time.sleep(0.01)
    _run(two, "UPDATE p SET v = 50 WHERE id = 5", "SELECT RELEASE_LOCK('first row')")
    copying.join()
    assert _run(one, "SELECT id, k FROM t ORDER BY id") == [(1, 5), (2, 5)]


def test_an_overtaken_row_at_read_committed(server: Server, database: str) -> None:
    server.query(TABLE.replace("TABLE t", f"TABLE {database}.t"))
    server.query(f"INSERT INTO {database}.t SELECT seq, seq, seq, seq FROM seq_1_to_5")
    one, two = _sessions(server, database, "READ COMMITTED")
    _run(one, "BEGIN", "DELETE FROM t WHERE id = 1")
    _run(two, "UPDATE t SET k = 9 WHERE id = 1")
    # The index entry k = 9 leads to a row that the reading transaction has deleted.
    _fails(one, DEADLOCK, "SELECT v FROM t FORCE INDEX (k) WHERE k = 9")
    _run(one, "COMMIT")
    assert _row(one, 1) == (1, 1, 9, 1)
    for session in (one, two):
        session.close()


def test_savepoints(pair: list[Session]) -> None:
    one, two = pair
    _run(one, "BEGIN", "UPDATE t SET v = 10 WHERE id = 1", "SAVEPOINT s")
    _run(one, "UPDATE t SET v = 20 WHERE id = 2", "ROLLBACK TO s", "COMMIT")
    assert _run(one, "SELECT v FROM t WHERE id < 3") == [(10,), (2,)]
    # Keys noted for the validation outlive a rollback to a savepoint, as row locks do.
    _run(one, "BEGIN", "UPDATE t SET v = 11 WHERE id = 1", "SAVEPOINT s")
    _run(one, "UPDATE t SET v = 20 WHERE id = 2", "ROLLBACK TO s")
    _run(two, "UPDATE t SET v = 21 WHERE id = 2")
    _fails(one, DEADLOCK, "COMMIT")
    # Without any write left there is nothing to validate.
    _run(one, "BEGIN", "SAVEPOINT s", "UPDATE t SET v = 20 WHERE id = 2", "ROLLBACK TO s")
    _run(two, "UPDATE t SET v = 22 WHERE id = 2")
    _run(one, "COMMIT")


def test_a_statement_that_fails_leaves_the_others(pair: list[Session]) -> None:
    one, _ = pair
    _run(one, "BEGIN", "UPDATE t SET v = 10 WHERE id = 1")
    _fails(one, DUPLICATE, "INSERT INTO t VALUES (8, 8, 8, 8), (9, 2, 9, 9)")
    _run(one, "COMMIT")
    assert _row(one, 1) == (1, 1, 1, 10)
    assert _run(one, "SELECT COUNT(*) FROM t") == [(5,)]


def test_autocommit_statements_lose_as_well(server: Server, database: str) -> None:
    server.query(f"CREATE TABLE {database}.c (n INT) ENGINE=FIRN FIRN_LOCKING=OPTIMISTIC")
    server.query(f"INSERT INTO {database}.c VALUES (0)")
    done: list[int] = []
    codes: set[int] = set()

    def count() -> None:
        with contextlib.closing(server.connect(database)) as session:
            number = 0
            for _ in range(150):
                try:
                    _run(session, "UPDATE c SET n = n + 1")
                    number += 1
                except pymysql.err.MySQLError as error:
                    codes.add(error.args[0])
            done.append(number)

    threads = [threading.Thread(target=count) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert server.query(f"SELECT n FROM {database}.c") == ((sum(done),),)
    assert codes <= {DEADLOCK}
    # A commit makes the others fail, and an attempt that fails may have been in the way of more.
    # With few processors one of five may commit; without progress there would be none.
    assert sum(done) >= 30


def test_index_merge_and_multi_table_statements(pair: list[Session]) -> None:
    one, two = pair
    _run(one, "BEGIN", "UPDATE t SET v = 0 WHERE u = 1 OR k = 2")
    _run(two, "UPDATE t SET v = 9 WHERE id = 5")
    _run(one, "COMMIT")
    assert _run(one, "SELECT id FROM t WHERE v = 0 ORDER BY id") == [(1,), (2,)]
    _run(one, "CREATE TABLE s (id INT PRIMARY KEY, t INT) ENGINE=FIRN")
    _run(one, "INSERT INTO s VALUES (1, 3), (2, 4)")
    _run(one, "BEGIN", "UPDATE t JOIN s ON t.id = s.t SET t.v = 50, s.t = 0 WHERE s.id = 1")
    _run(two, "UPDATE t SET v = 7 WHERE id = 3")
    _fails(one, DEADLOCK, "COMMIT")
    assert _run(one, "SELECT * FROM s") == [(1, 3), (2, 4)]
    _run(one, "UPDATE t a JOIN t b ON b.id = a.id + 1 SET a.v = 60, b.k = 60 WHERE a.id = 1")
    assert _run(one, "SELECT v, k FROM t WHERE id IN (1, 2) ORDER BY id") == [(60, 1), (0, 60)]


def test_a_pessimistic_table_in_the_same_transaction(pair: list[Session]) -> None:
    one, two = pair
    _run(one, "CREATE TABLE p (id INT PRIMARY KEY, v INT) ENGINE=FIRN")
    _run(one, "INSERT INTO p VALUES (1, 1)")
    _run(one, "BEGIN", "UPDATE p SET v = 2 WHERE id = 1", "UPDATE t SET v = 2 WHERE id = 1")
    _run(two, "BEGIN", "UPDATE t SET v = 3 WHERE id = 1")
    _fails(two, 1205, "SELECT * FROM p WHERE id = 1 FOR UPDATE NOWAIT")
    _run(one, "COMMIT")
    _fails(two, DEADLOCK, "COMMIT")


def test_serializable_sessions_lock(server: Server, database: str) -> None:
    server.query(TABLE.replace("TABLE t", f"TABLE {database}.t"))
    server.query(f"INSERT INTO {database}.t SELECT seq, seq, seq, seq FROM seq_1_to_5")
    one, two = _sessions(server, database, "SERIALIZABLE")
    (three,) = _sessions(server, database, "REPEATABLE READ", 1)
    _run(one, "BEGIN", "SELECT * FROM t WHERE id BETWEEN 1 AND 9", "DELETE FROM t WHERE id = 5")
    _fails(two, 1205, "UPDATE t SET v = 0 WHERE id = 1")
    # An optimistic transaction does not wait, and loses.
    _run(three, "BEGIN", "UPDATE t SET v = 0 WHERE id = 1")
    _fails(three, DEADLOCK, "COMMIT")
    _run(three, "BEGIN", "INSERT INTO t VALUES (7, 7, 7, 7)")
    _fails(three, DEADLOCK, "COMMIT")
    _run(three, "BEGIN", "INSERT INTO t VALUES (-7, 70, 70, 70)", "COMMIT")
    _run(one, "COMMIT")
    assert _run(one, "SELECT id FROM t ORDER BY id") == [(-7,), (1,), (2,), (3,), (4,)]
    # The session at SERIALIZABLE changes a row that the optimistic transaction has read.
    _run(three, "BEGIN", "UPDATE t SET v = 8 WHERE id = 2")
    _run(one, "UPDATE t SET v = 9 WHERE id = 2")
    _fails(three, DEADLOCK, "COMMIT")
    for session in (one, two, three):
        session.close()


def test_no_rename_makes_an_optimistic_table_part_of_a_foreign_key(
    server: Server, database: str
) -> None:
    (one,) = _sessions(server, database, "REPEATABLE READ", 1)
    _run(
        one,
        TABLE,
        "CREATE TABLE plain (id INT PRIMARY KEY) ENGINE=FIRN",
        "SET foreign_key_checks = 0",
        "CREATE TABLE child (id INT PRIMARY KEY, CONSTRAINT c FOREIGN KEY (id) REFERENCES p (id)) "
        "ENGINE=FIRN",
    )
    for rename in (
        "RENAME TABLE t TO p",
        "ALTER TABLE t RENAME TO p",
        "ALTER TABLE t RENAME TO p, ADD COLUMN w INT, ALGORITHM=COPY",
        "RENAME TABLE plain TO other, t TO p",
    ):
        with pytest.raises(pymysql.err.MySQLError) as caught:
            _run(one, rename)
        assert caught.value.args[0] in (1005, 1025), caught.value
    assert {name for (name,) in _run(one, "SHOW TABLES")} == {"t", "plain", "child"}
    _run(one, "RENAME TABLE plain TO p", "SET foreign_key_checks = 1")
    _fails(one, 1452, "INSERT INTO child VALUES (1)")


def test_the_option_in_definitions(server: Server, database: str) -> None:
    (session,) = _sessions(server, database, "REPEATABLE READ", 1)
    (other,) = _sessions(server, database, "REPEATABLE READ", 1)

    def loses(table: str) -> bool:
        _run(session, "BEGIN", f"UPDATE {table} SET v = v + 1 WHERE id = 1")
        try:
            _run(other, f"UPDATE {table} SET v = v + 1 WHERE id = 1")
        except pymysql.err.MySQLError as error:
            assert error.args[0] == 1205
            _run(session, "ROLLBACK")
            return False
        _fails(session, DEADLOCK, "COMMIT")
        return True

    _run(session, TABLE, "INSERT INTO t VALUES (1, 1, 1, 1)")
    shown = _run(session, "SHOW CREATE TABLE t")[0][1]
    assert "FIRN_LOCKING" in shown.upper()
    assert "OPTIMISTIC" in shown.upper()
    assert loses("t")
    _run(session, "CREATE TABLE l LIKE t", "INSERT INTO l VALUES (1, 1, 1, 1)")
    assert loses("l")
    for algorithm in ("DEFAULT", "COPY"):
        _run(session, f"ALTER TABLE t FIRN_LOCKING=PESSIMISTIC, ALGORITHM={algorithm}")
        assert not loses("t")
        _run(session, f"ALTER TABLE t FIRN_LOCKING=OPTIMISTIC, ALGORITHM={algorithm}")
        assert loses("t")
    _run(session, "ALTER TABLE t ADD KEY v (v)", "ALTER TABLE t COMMENT 'x'", "RENAME TABLE t TO r")
    assert loses("r")
    _run(session, "TRUNCATE r", "INSERT INTO r VALUES (1, 1, 1, 1)")
    assert loses("r")
    _run(
        session,
        "CREATE TABLE q (id INT PRIMARY KEY, v INT) ENGINE=FIRN FIRN_LOCKING=OPTIMISTIC "
        "PARTITION BY HASH (id) PARTITIONS 3",
        "INSERT INTO q VALUES (1, 1), (2, 2), (3, 3)",
    )
    assert loses("q")
    _run(session, "CREATE TABLE n (id INT PRIMARY KEY, v INT) ENGINE=FIRN")
    _run(session, "INSERT INTO n VALUES (1, 1)")
    assert not loses("n")
    # The server names options that no engine knows; values that this one does not know fail.
    _fails(session, 1912, "CREATE TABLE x (id INT) ENGINE=FIRN FIRN_LOCKING=MAYBE")
    for one in (session, other):
        one.close()


def test_the_mode_survives_a_restart(own_server: Callable[..., Server]) -> None:
    server = own_server()
    server.query("CREATE DATABASE d")
    server.query(TABLE.replace("TABLE t", "TABLE d.t"))
    server.query("INSERT INTO d.t VALUES (1, 1, 1, 1)")
    server.crash_and_recover()
    one, two = _sessions(server, "d", "REPEATABLE READ")
    _run(one, "BEGIN", "UPDATE t SET v = 2 WHERE id = 1")
    _run(two, "UPDATE t SET v = 3 WHERE id = 1")
    _fails(one, DEADLOCK, "COMMIT")
    assert server.query("SHOW GLOBAL STATUS LIKE 'Firn_optimistic_conflicts'")[0][1] == "1"


def _logged(server: Server) -> str:
    server.query("FLUSH BINARY LOGS")
    files = sorted(str(path) for path in server.data.glob("bin.0*"))
    command = ["mariadb-binlog", "--no-defaults", "--base64-output=DECODE-ROWS", "-v", *files]
    return subprocess.run(command, capture_output=True, text=True, check=True).stdout


@pytest.mark.parametrize("alone", [True, False], ids=["alone", "with_innodb"])
def test_two_phase_commit_with_the_binary_log(
    own_server: Callable[..., Server], alone: bool
) -> None:
    server = own_server(*BINLOG)
    server.query("CREATE DATABASE d")
    server.query(TABLE.replace("TABLE t", "TABLE d.t"))
    server.query("INSERT INTO d.t SELECT seq, seq, seq, seq FROM seq_1_to_5")
    server.query("CREATE TABLE d.i (id INT PRIMARY KEY) ENGINE=InnoDB")
    one, two = _sessions(server, "d", "REPEATABLE READ")
    _run(one, "BEGIN", "UPDATE t SET v = 111111 WHERE id = 1")
    if not alone:
        _run(one, "INSERT INTO i VALUES (1)")
    _run(two, "UPDATE t SET v = 222222 WHERE id = 1")
    _fails(one, DEADLOCK, "COMMIT")
    assert _row(one, 1) == (1, 1, 1, 222222)
    assert _run(one, "SELECT * FROM i") == []
    # A single statement is prepared as well.
    _run(one, "UPDATE t SET v = 333333 WHERE id = 2")
    # At REPEATABLE READ a statement must be logged by its rows.
    _run(one, "SET SESSION binlog_format = STATEMENT")
    _fails(one, 1665, "UPDATE t SET v = 444444 WHERE id = 2")
    logged = _logged(server)
    assert not [value for value in ("111111", "444444") if value in logged]
    assert [value for value in ("222222", "333333") if value in logged] == ["222222", "333333"]
    assert logged.count("COMMIT") >= 3


def test_xa(own_server: Callable[..., Server]) -> None:
    server = own_server()
    server.query("CREATE DATABASE d")
    server.query(TABLE.replace("TABLE t", "TABLE d.t"))
    server.query("INSERT INTO d.t SELECT seq, seq, seq, seq FROM seq_1_to_5")
    one, two = _sessions(server, "d", "REPEATABLE READ")
    # The prepare validates.
    _run(one, "XA START 'a'", "UPDATE t SET v = 10 WHERE id = 1")
    _run(two, "UPDATE t SET v = 20 WHERE id = 1")
    _run(one, "XA END 'a'")
    _fails(one, DEADLOCK, "XA PREPARE 'a'")
    with contextlib.suppress(pymysql.err.MySQLError):
        _run(one, "XA ROLLBACK 'a'")
    assert server.query("XA RECOVER") == ()
    # A prepared transaction keeps its keys, also when it has left its session and after a kill.
    _run(one, "XA START 'b'", "UPDATE t SET v = 10 WHERE id = 1")
    _run(one, "INSERT INTO t VALUES (7, 7, 7, 7)")
    _run(one, "XA END 'b'", "XA PREPARE 'b'")
    for place in ("session", "detached", "recovered"):
        for change in (
            "UPDATE t SET v = 30 WHERE id = 1",
            "INSERT INTO t VALUES (7, 70, 7, 7)",
            "INSERT INTO t VALUES (8, 7, 7, 7)",
        ):
            _fails(two, DEADLOCK, change)
        _run(two, f"UPDATE t SET v = v + 1, k = {len(place)} WHERE id = 2")
        one.close() if place == "session" else None
        if place == "detached":
            server.crash_and_recover()
            (two,) = _sessions(server, "d", "REPEATABLE READ", 1)
    _run(two, "XA COMMIT 'b'")
    assert _row(two, 1) == (1, 1, 1, 10)
    assert _row(two, 7) == (7, 7, 7, 7)
    _fails(two, DUPLICATE, "INSERT INTO t VALUES (8, 7, 7, 7)")
    _run(two, "XA START 'c'", "DELETE FROM t WHERE id = 1", "XA END 'c'", "XA COMMIT 'c' ONE PHASE")
    assert _row(two, 1) is None


def test_a_kill_between_prepare_and_commit(own_server: Callable[..., Server]) -> None:
    """Sessions count in one row; after kills each acknowledged increment is there, once."""
    server = own_server(*BINLOG, "--sync-binlog=1")
    server.query("CREATE DATABASE d")
    server.query("CREATE TABLE d.c (id INT PRIMARY KEY, n INT) ENGINE=FIRN FIRN_LOCKING=OPTIMISTIC")
    server.query("INSERT INTO d.c VALUES (0, 0)")
    acknowledged, unknown = [0], [0]
    lock = threading.Lock()

    def count(stop: threading.Event) -> None:
        try:
            with contextlib.closing(server.connect("d")) as session:
                while not stop.is_set():
                    asked = False
                    try:
                        _run(session, "BEGIN", "UPDATE c SET n = n + 1")
                        asked = True
                        _run(session, "COMMIT")
                        with lock:
                            acknowledged[0] += 1
                    except pymysql.err.MySQLError as error:
                        if error.args[0] == DEADLOCK:
                            continue
                        with lock:
                            unknown[0] += asked
                        return
        except (pymysql.err.MySQLError, OSError):
            return

    for _ in range(3):
        stop = threading.Event()
        threads = [threading.Thread(target=count, args=(stop,)) for _ in range(6)]
        for thread in threads:
            thread.start()
        before, deadline = acknowledged[0], time.monotonic() + 60
        stop.wait(0.7)
        while acknowledged[0] < before + 7:
            assert time.monotonic() < deadline, acknowledged
            stop.wait(0.02)
        server.kill()
        stop.set()
        for thread in threads:
            thread.join()
        server.start()
        ((n,),) = server.query("SELECT n FROM d.c")
        assert acknowledged[0] <= n <= acknowledged[0] + unknown[0], (n, acknowledged, unknown)
        acknowledged[0], unknown[0] = n, 0
    assert acknowledged[0] > 20


def test_transactions_larger_than_memory(own_server: Callable[..., Server]) -> None:
    server = own_server("--loose-firn-txn-memory-limit=1048576")
    server.query("CREATE DATABASE d")
    server.query(
        "CREATE TABLE d.t (id INT PRIMARY KEY, u INT UNIQUE, v INT, pad CHAR(200)) "
        "ENGINE=FIRN FIRN_LOCKING=OPTIMISTIC"
    )
    server.query("INSERT INTO d.t SELECT seq, seq, 0, 'x' FROM seq_1_to_40000")
    one, two = _sessions(server, "d", "REPEATABLE READ")
    for change, clash, changed in (
        ("UPDATE t SET v = v + 1, pad = REPEAT('y', 200)", "UPDATE t SET v = 9 WHERE id = 39999",
         "pad LIKE 'y%'"),
        ("INSERT INTO t SELECT seq, seq, 1, 'z' FROM seq_50001_to_80000",
         "INSERT INTO t VALUES (1000000, 79999, 0, '')", "pad = 'z'"),
    ):  # fmt: skip
        _run(one, "BEGIN", change)
        _run(two, clash)
        _fails(one, DEADLOCK, "COMMIT")
        assert server.query(f"SELECT COUNT(*) FROM d.t WHERE {changed}") == ((0,),)
        _run(two, "DELETE FROM t WHERE id > 40000", "UPDATE t SET v = 0 WHERE v <> 0")
        _run(one, "BEGIN", change)
        _run(two, "UPDATE t SET v = 0 WHERE id = 1") if "INSERT" in change else None
        _run(one, "COMMIT")
        assert server.query(f"SELECT COUNT(*) >= 30000 FROM d.t WHERE {changed}") == ((1,),)
    assert server.query("CHECK TABLE d.t EXTENDED")[-1][3] == "OK"


def test_rows_that_nobody_changes_are_validated_too(pair: list[Session]) -> None:
    one, two = pair
    # The row has the value of this UPDATE already, so the UPDATE writes nothing.
    _run(one, "BEGIN", "SELECT v FROM t WHERE id = 1 FOR UPDATE")
    _run(two, "UPDATE t SET v = 2 WHERE id = 1")
    _run(one, "UPDATE t SET v = 2 WHERE id = 1")
    _fails(one, DEADLOCK, "COMMIT")
    # InnoDB writes in the transaction, and may commit before FIRN does, so FIRN must not fail.
    _run(one, "CREATE TABLE i (id INT PRIMARY KEY) ENGINE=InnoDB")
    _run(one, "BEGIN", "SELECT v FROM t WHERE id = 1 FOR UPDATE", "INSERT INTO i VALUES (1)")
    _run(two, "UPDATE t SET v = 3 WHERE id = 1")
    _run(one, "COMMIT")
    assert _run(one, "SELECT * FROM i") == [(1,)]
    # If FIRN has written and rolled that back, both engines are prepared first, so FIRN may fail.
    _run(
        one,
        *("BEGIN", "SELECT * FROM t", "SAVEPOINT a", "UPDATE t SET v = 8", "ROLLBACK TO a"),
        *("SELECT v FROM t WHERE id = 1 FOR UPDATE", "INSERT INTO i VALUES (2)"),
    )
    _run(two, "UPDATE t SET v = 7 WHERE id = 1")
    _fails(one, DEADLOCK, "COMMIT")
    assert _run(one, "SELECT * FROM i") == [(1,)]
    # InnoDB only reads in the transaction, so FIRN validates its own writes.
    _run(one, "BEGIN", "SELECT * FROM i", "UPDATE t SET v = 4 WHERE id = 1")
    _run(two, "UPDATE t SET v = 5 WHERE id = 1")
    _fails(one, DEADLOCK, "COMMIT")
    _run(one, "BEGIN", "UPDATE t SET v = 4 WHERE id = 1", "SELECT * FROM i")
    _run(two, "UPDATE t SET v = 6 WHERE id = 1")
    _fails(one, DEADLOCK, "COMMIT")
    assert _row(one, 1) == (1, 1, 1, 6)


@pytest.mark.parametrize("binlog", [False, True], ids=["no_binlog", "binlog"])
def test_an_engine_that_only_reads_changes_nothing(
    own_server: Callable[..., Server], binlog: bool
) -> None:
    """All engines and the binary log take part in a transaction with a consistent snapshot."""
    server = own_server(*(BINLOG if binlog else []))
    server.query("CREATE DATABASE d")
    server.query(TABLE.replace("TABLE t", "TABLE d.t"))
    server.query("INSERT INTO d.t SELECT seq, seq, seq, seq FROM seq_1_to_5")
    server.query("CREATE TABLE d.i (id INT PRIMARY KEY) ENGINE=InnoDB")
    one, two = _sessions(server, "d", "REPEATABLE READ")
    lock = "SELECT v FROM t WHERE id = 1 FOR UPDATE"
    taken_back = ("SAVEPOINT a", "UPDATE t SET v = 0 WHERE id = 2", "ROLLBACK TO a")
    transactions: list[tuple[str, ...]] = [
        ("START TRANSACTION WITH CONSISTENT SNAPSHOT", lock),
        ("START TRANSACTION WITH CONSISTENT SNAPSHOT", *taken_back, lock),
        ("BEGIN", "SELECT * FROM i", lock),
        ("BEGIN", lock, "SELECT * FROM i"),
        ("BEGIN", lock, "SELECT * FROM i FOR UPDATE"),
    ]
    for number, statements in enumerate(transactions):
        _run(one, *statements)
        _run(two, f"UPDATE t SET v = {100 + number} WHERE id = 1")
        _fails(one, DEADLOCK, "COMMIT")


def test_an_engine_that_writes_unlogged_rows_commits(own_server: Callable[..., Server]) -> None:
    server = own_server(*BINLOG, "--binlog-ignore-db=d")
    server.query("CREATE DATABASE d")
    server.query(TABLE.replace("TABLE t", "TABLE d.t"))
    server.query("INSERT INTO d.t VALUES (1, 1, 1, 1)")
    server.query("CREATE TABLE d.i (id INT PRIMARY KEY) ENGINE=InnoDB")
    one, two = _sessions(server, "d", "REPEATABLE READ")
    lock = "SELECT v FROM t WHERE id = 1 FOR UPDATE"
    for number, statements in enumerate(
        [(lock, "INSERT INTO i VALUES (0)"), ("INSERT INTO i VALUES (1)", lock)]
    ):
        _run(one, "BEGIN", *statements)
        _run(two, f"UPDATE t SET v = {100 + number} WHERE id = 1")
        _run(one, "COMMIT")
    assert _run(one, "SELECT * FROM i") == [(0,), (1,)]


def test_the_retry_loop_of_the_documentation(server: Server, database: str) -> None:
    text = (REPOSITORY / "docs" / "optimistic.md").read_text()
    procedure = text[text.index("CREATE PROCEDURE take") :]
    (session,) = _sessions(server, database, "REPEATABLE READ", 1)
    table = text[text.index("CREATE TABLE stock") :]
    _run(session, table[: table.index(";")], "INSERT INTO stock VALUES (1, 1000)")
    _run(session, procedure[: procedure.index("END LOOP") + len("END LOOP")])

    def take() -> None:
        with contextlib.closing(server.connect(database)) as own:
            for _ in range(50):
                _run(own, "CALL take(1)")

    threads = [threading.Thread(target=take) for _ in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert _run(session, "SELECT n FROM stock") == [(850,)]
    session.close()


def test_a_parallel_replica(own_server: Callable[..., Server]) -> None:
    """Appliers lock, so none of them fails because a later transaction was prepared first."""
    port = free_port()
    server = own_server(
        *BINLOG, "--skip-networking=0", "--bind-address=127.0.0.1", f"--port={port}"
    )
    replica = own_server(
        "--server-id=2", "--slave-parallel-threads=4", "--slave-parallel-mode=optimistic"
    )
    server.query("CREATE USER 'r'@'%' IDENTIFIED BY 'p'")
    server.query("GRANT REPLICATION SLAVE ON *.* TO 'r'@'%'")
    replica.query(
        "CHANGE MASTER TO MASTER_HOST='127.0.0.1', MASTER_PORT=%s, MASTER_USER='r', "
        "MASTER_PASSWORD='p', MASTER_USE_GTID=slave_pos, MASTER_CONNECT_RETRY=1",
        (port,),
    )
    server.query("CREATE DATABASE d")
    server.query(TABLE.replace("TABLE t", "TABLE d.t"))
    server.query("INSERT INTO d.t SELECT seq, seq, seq, 0 FROM seq_1_to_4")
    done = [0] * 4

    def count(number: int) -> None:
        with contextlib.closing(server.connect("d")) as session:
            for turn in range(120):
                row = (number + turn) % 4 + 1
                try:
                    _run(session, "BEGIN", f"UPDATE t SET v = v + 1 WHERE id = {row}")
                    _run(session, f"REPLACE INTO t VALUES ({turn * 10 + 100}, NULL, {number}, 0)")
                    _run(session, f"DELETE FROM t WHERE id = {turn * 10 + 90}", "COMMIT")
                    done[number] += 1
                except pymysql.err.OperationalError as error:
                    assert error.args[0] == DEADLOCK

    threads = [threading.Thread(target=count, args=(number,)) for number in range(4)]
    for thread in threads:
        thread.start()
    replica.query("START SLAVE")
    for thread in threads:
        thread.join()
    gtid = server.query("SELECT @@gtid_binlog_pos")[0][0]
    waited = replica.query("SELECT MASTER_GTID_WAIT(%s, 150)", (gtid,))[0][0]
    assert waited == 0, (replica.query("SHOW SLAVE STATUS"), replica.log_tail())
    assert server.query("SELECT SUM(v) FROM d.t") == ((sum(done),),)
    everything = "SELECT * FROM d.t ORDER BY id"
    assert replica.query(everything) == server.query(everything)
    assert "OPTIMISTIC" in replica.query("SHOW CREATE TABLE d.t")[0][1].upper()
    replica.query("STOP SLAVE")
    assert sum(done) > 20


def test_values_out_of_line(server: Server, database: str) -> None:
    server.query(
        f"CREATE TABLE {database}.b (id INT PRIMARY KEY, v INT, data LONGBLOB) "
        "ENGINE=FIRN FIRN_LOCKING=OPTIMISTIC"
    )
    one, two = _sessions(server, database, "REPEATABLE READ")
    _run(one, "INSERT INTO b VALUES (1, 1, REPEAT('a', 100000)), (2, 2, REPEAT('b', 100000))")
    _run(one, "BEGIN", "UPDATE b SET v = 10 WHERE id = 1")
    _run(two, "UPDATE b SET data = REPEAT('c', 100000) WHERE id = 1")
    # An update that leaves the value alone copies its reference, here of the old version.
    assert _run(one, "SELECT v, LEFT(data, 2), LENGTH(data) FROM b WHERE id = 1") == [
        (10, b"aa", 100000)
    ]
    _fails(one, DEADLOCK, "COMMIT")
    _run(one, "BEGIN", "UPDATE b SET v = 10", "COMMIT")
    assert _run(one, "SELECT v, LEFT(data, 2) FROM b ORDER BY id") == [(10, b"cc"), (10, b"bb")]
    assert server.query(f"CHECK TABLE {database}.b EXTENDED")[-1][3] == "OK"
    for session in (one, two):
        session.close()
