"""Transactions beyond row locks: limits, XA, two engines at once, dumps, binary log formats."""

from __future__ import annotations

import subprocess
import threading
import time
from collections.abc import Callable
from typing import Any

import pymysql
import pytest
from server import ENGINE, IS_FIRN, NO_PURGE, Server


def _run(connection: pymysql.Connection[Any], *statements: str) -> list[tuple[Any, ...]]:
    rows: list[tuple[Any, ...]] = []
    for sql in statements:
        with connection.cursor() as cursor:
            cursor.execute(sql)
            rows = list(cursor.fetchall())
    return rows


def test_a_large_transaction_is_atomic(own_server: Callable[..., Server]) -> None:
    server = own_server("--loose-firn-memtable-size=1048576")
    server.query("CREATE DATABASE d")
    server.query(f"CREATE TABLE d.t (id INT PRIMARY KEY, v INT, KEY v (v)) ENGINE={ENGINE}")
    server.query("INSERT INTO d.t SELECT seq, seq FROM seq_1_to_60000")
    session = server.connect("d")
    _run(session, "BEGIN", "UPDATE t SET v = v + 1000000", "DELETE FROM t WHERE id % 3 = 0")
    assert server.query("SELECT COUNT(*), SUM(v) FROM d.t") == ((60000, 1800030000),)
    _run(session, "ROLLBACK")
    assert server.query("SELECT COUNT(*), SUM(v) FROM d.t") == ((60000, 1800030000),)
    _run(session, "BEGIN", "UPDATE t SET v = v + 1000000", "COMMIT")
    session.close()
    server.crash_and_recover()
    assert server.query("SELECT COUNT(*), MIN(v) FROM d.t FORCE INDEX (v)") == ((60000, 1000001),)


@pytest.mark.parametrize("end", ["COMMIT", "ROLLBACK"])
@pytest.mark.parametrize("crash", [False, True], ids=["clean", "killed"])
def test_xa_works_or_is_refused(own_server: Callable[..., Server], end: str, crash: bool) -> None:
    server = own_server()
    server.query("CREATE DATABASE d")
    server.query(f"CREATE TABLE d.t (id INT PRIMARY KEY, v INT, KEY v (v)) ENGINE={ENGINE}")
    server.query("INSERT INTO d.t VALUES (1, 1)")
    session = server.connect("d")
    try:
        _run(session, "XA START 'x1'", "INSERT INTO t VALUES (2, 2)")
        _run(session, "UPDATE t SET v = 9 WHERE id = 1", "XA END 'x1'", "XA PREPARE 'x1'")
    except pymysql.err.MySQLError as error:
        assert IS_FIRN, error
        assert error.args[0] >= 1000, error
        assert error.args[0] not in (1030, 2013), error
        session.close()
        assert server.query("SELECT * FROM d.t") == ((1, 1),)
        return
    session.close()
    if crash:
        server.crash_and_recover()
    recovered = server.query("XA RECOVER")
    assert [bytes(row[3]) for row in recovered] == [b"x1"]
    assert server.query("SELECT * FROM d.t") == ((1, 1),)
    blocked = server.connect("d")
    with pytest.raises(pymysql.err.MySQLError) as caught:
        _run(blocked, "SELECT * FROM t WHERE id = 1 FOR UPDATE NOWAIT")
    assert caught.value.args[0] == 1205
    if IS_FIRN:
        # The session's metadata locks are gone with it, but its prepared transaction must still
        # block DDL.
        _run(blocked, "ROLLBACK", "SET lock_wait_timeout = 5")
        for ddl in (
            "DROP TABLE t",
            "TRUNCATE t",
            "RENAME TABLE t TO u",
            "ALTER TABLE t ADD COLUMN c INT, ALGORITHM=COPY",
            "ALTER TABLE t DROP KEY v, ALGORITHM=INPLACE",
        ):
            with pytest.raises(pymysql.err.MySQLError) as caught:
                _run(blocked, ddl)
            # A rename (1025) and a change in place (1296) wrap the engine's error, a lock wait
            # timeout, in one of their own.
            assert caught.value.args[0] in (1025, 1205, 1296), (ddl, caught.value)
    _run(blocked, f"XA {end} 'x1'")
    expected = ((1, 9), (2, 2)) if end == "COMMIT" else ((1, 1),)
    assert server.query("SELECT * FROM d.t ORDER BY id") == expected
    assert server.query("XA RECOVER") == ()
    blocked.close()
    server.crash_and_recover()
    assert server.query("SELECT * FROM d.t ORDER BY id") == expected


def test_one_transaction_over_two_engines(connection: pymysql.Connection[Any]) -> None:
    _run(
        connection,
        "CREATE TABLE i (id INT PRIMARY KEY) ENGINE=InnoDB",
        f"CREATE TABLE f (id INT PRIMARY KEY) ENGINE={ENGINE}",
        "BEGIN",
        "INSERT INTO i VALUES (1)",
        "INSERT INTO f VALUES (1)",
        "SAVEPOINT s",
        "INSERT INTO f VALUES (2)",
        "INSERT INTO i VALUES (2)",
        "ROLLBACK TO SAVEPOINT s",
        "COMMIT",
        "BEGIN",
        "INSERT INTO f VALUES (3)",
        "INSERT INTO i VALUES (3)",
        "ROLLBACK",
    )
    assert _run(connection, "SELECT * FROM i JOIN f USING (id)") == [(1,)]
    assert _run(connection, "SELECT COUNT(*) FROM i") == [(1,)]
    assert _run(connection, "SELECT COUNT(*) FROM f") == [(1,)]


def test_dump_while_writing_is_one_snapshot(own_server: Callable[..., Server]) -> None:
    server = own_server()
    server.query("CREATE DATABASE d")
    server.query(
        f"CREATE TABLE d.a (id INT PRIMARY KEY, v INT, t TEXT CHARACTER SET utf8mb4, b BLOB, "
        f"KEY v (v)) ENGINE={ENGINE}"
    )
    server.query("CREATE TABLE d.b LIKE d.a")
    for table in ("a", "b"):
        server.query(
            f"INSERT INTO d.{table} SELECT seq, 1000, CONCAT('ü\\t', seq), UNHEX(MD5(seq)) "
            "FROM seq_1_to_3000"
        )
    stop = threading.Event()

    def move() -> None:
        session = server.connect("d", autocommit=False)
        n = 0
        while not stop.is_set():
            n += 1
            key = n % 3000 + 1
            _run(session, f"UPDATE a SET v = v - 1 WHERE id = {key}")
            _run(session, f"UPDATE b SET v = v + 1 WHERE id = {key}", "COMMIT")
        session.close()

    mover = threading.Thread(target=move)
    mover.start()
    try:
        dump = subprocess.run(
            ["mariadb-dump", "--no-defaults", f"--socket={server.socket}", "-uroot",
             "--single-transaction", "--hex-blob", "--default-character-set=utf8mb4", "d"],
            capture_output=True, check=True,
        ).stdout  # fmt: skip
    finally:
        stop.set()
        mover.join()
    server.query("CREATE DATABASE copy")
    subprocess.run(
        ["mariadb", "--no-defaults", f"--socket={server.socket}", "-uroot",
         "--default-character-set=utf8mb4", "copy"],
        input=dump, check=True,
    )  # fmt: skip
    total = "SELECT (SELECT SUM(v) FROM {0}.a) + (SELECT SUM(v) FROM {0}.b)"
    assert int(server.query(total.format("copy"))[0][0]) == 6_000_000
    for table in ("a", "b"):
        different = server.query(
            f"SELECT COUNT(*) FROM d.{table} o JOIN copy.{table} c USING (id) "
            "WHERE BINARY o.t <> BINARY c.t OR o.b <> c.b"
        )
        assert different[0][0] == 0
        assert server.query(f"SELECT COUNT(*) FROM copy.{table}") == ((3000,),)
        created = server.query(f"SHOW CREATE TABLE copy.{table}")[0][1]
        assert f"ENGINE={ENGINE}".upper() in created.upper()


CHANGES = [
    "INSERT INTO t SELECT seq, seq % 7, CONCAT('é', seq) FROM seq_1_to_200",
    "UPDATE t SET v = v + 1 WHERE id % 5 = 0",
    "DELETE FROM t WHERE v = 3",
    "INSERT INTO t VALUES (5, 5, UUID()) ON DUPLICATE KEY UPDATE v = v * 10",
    "REPLACE INTO t VALUES (7, 70, 'seven')",
    "UPDATE t SET id = id + 1000 ORDER BY id DESC LIMIT 10",
    "ALTER TABLE t ADD COLUMN n INT DEFAULT 4, ADD INDEX (n)",
    "UPDATE t SET n = id WHERE v > 2 LIMIT 5",
    "INSERT INTO u (w) SELECT w FROM t",
    "DELETE t FROM t JOIN u USING (w) WHERE u.id < 10",
    "TRUNCATE TABLE u",
    "INSERT INTO u (w) VALUES (CONNECTION_ID())",
]


@pytest.mark.parametrize("form", ["ROW", "MIXED"])
def test_the_binary_log_makes_the_same_tables_again(
    own_server: Callable[..., Server], form: str
) -> None:
    server = own_server("--log-bin=bin", f"--binlog-format={form}", "--server-id=1")
    server.query("CREATE DATABASE d")
    session = server.connect("d")
    _run(
        session,
        f"CREATE TABLE t (id INT PRIMARY KEY, v INT, w VARCHAR(60), KEY v (v)) ENGINE={ENGINE}",
        f"CREATE TABLE u (id INT AUTO_INCREMENT PRIMARY KEY, w VARCHAR(60)) ENGINE={ENGINE}",
        *CHANGES,
    )
    session.close()
    server.stop()
    logs = [str(path) for path in sorted(server.data.glob("bin.0*"))]
    events = subprocess.run(
        ["mariadb-binlog", "--no-defaults", *logs], capture_output=True, check=True
    ).stdout
    replica = own_server("--server-id=2")
    server.start()
    subprocess.run(
        ["mariadb", "--no-defaults", f"--socket={replica.socket}", "-uroot"],
        input=events, check=True,
    )  # fmt: skip
    for table in ("t", "u"):
        sql = f"SELECT * FROM d.{table} ORDER BY id"
        assert server.query(sql) == replica.query(sql)
        check = replica.query(f"CHECK TABLE d.{table} EXTENDED")
        assert check[-1][3] == "OK"
    assert server.query("SELECT COUNT(*) > 100 FROM d.t") == ((1,),)


def _joined_late(own_server: Callable[..., Server], *options: str) -> Server:
    """A server on which the engine is installed at runtime, with a table of each engine."""
    server = own_server(*options, load_engine=False)
    server.query("INSTALL SONAME 'ha_firn'")
    server.query("CREATE DATABASE d")
    server.query(f"CREATE TABLE d.f (id INT PRIMARY KEY, v INT) ENGINE={ENGINE}")
    server.query("CREATE TABLE d.i (id INT PRIMARY KEY, v INT) ENGINE=InnoDB")
    return server


@pytest.mark.skipif(not IS_FIRN, reason="other engines are not installed late")
def test_installed_late_it_refuses_what_it_could_do_by_half(
    own_server: Callable[..., Server],
) -> None:
    server = _joined_late(own_server, NO_PURGE)
    session = server.connect("d")
    _run(session, "XA START 'x'", "INSERT INTO i VALUES (1, 1)")
    for sql in ("INSERT INTO f VALUES (1, 1)", "SELECT * FROM f"):
        with pytest.raises(pymysql.err.MySQLError, match="restart the server") as caught:
            _run(session, sql)
        assert caught.value.args[0] == 1235
    # Despite the error, the XA transaction can be committed in the other engines, and loses
    # nothing.
    _run(session, "XA END 'x'", "XA PREPARE 'x'", "XA COMMIT 'x'")
    assert server.query("SELECT * FROM d.i") == ((1, 1),)

    # FIRN refuses a write in a transaction in which another engine has written …
    _run(session, "BEGIN", "INSERT INTO i VALUES (2, 2)")
    assert _run(session, "SELECT * FROM f FOR UPDATE") == []
    for sql in (
        "INSERT INTO f VALUES (2, 2)",
        "INSERT INTO f SELECT * FROM i",
    ):
        with pytest.raises(pymysql.err.MySQLError, match="restart the server"):
            _run(session, sql)
    _run(session, "COMMIT")
    assert server.query("SELECT COUNT(*) FROM d.f") == ((0,),)
    assert server.query("SELECT COUNT(*) FROM d.i") == ((2,),)
    # … and a single statement that writes to both engines.
    _run(session, "INSERT INTO f VALUES (2, 2)")
    with pytest.raises(pymysql.err.MySQLError, match="restart the server"):
        _run(session, "UPDATE i STRAIGHT_JOIN f ON f.id = i.id SET i.v = 9, f.v = 9")
    assert server.query("SELECT v FROM d.i WHERE id = 2") == ((2,),)
    assert server.query("SELECT v FROM d.f WHERE id = 2") == ((2,),)
    # A transaction may read one engine and write to the other.
    _run(session, "BEGIN", "INSERT INTO f SELECT id + 10, v FROM i", "COMMIT")
    _run(session, "BEGIN", "SELECT * FROM f", "INSERT INTO i VALUES (3, 3)", "COMMIT")
    assert server.query("SELECT COUNT(*) FROM d.f") == ((3,),)
    session.close()

    # Do as the error says: restart the server, which then loads the engine at its start.
    server.load_engine = True
    server.restart(["--plugin-load-add=ha_firn"])
    session = server.connect("d")
    _run(session, "XA START 'y'", "INSERT INTO i VALUES (5, 5)", "INSERT INTO f VALUES (5, 5)")
    _run(session, "XA END 'y'", "XA PREPARE 'y'", "XA COMMIT 'y'")
    _run(session, "BEGIN", "INSERT INTO i VALUES (6, 6)", "INSERT INTO f VALUES (6, 6)", "COMMIT")
    session.close()
    server.crash_and_recover()
    for table in ("f", "i"):
        assert server.query(f"SELECT id FROM d.{table} WHERE id IN (5, 6)") == ((5,), (6,))


@pytest.mark.skipif(not IS_FIRN, reason="other engines are not installed late")
def test_installed_late_beside_a_binary_log_it_takes_part(
    own_server: Callable[..., Server],
) -> None:
    server = _joined_late(own_server, "--log-bin=bin", "--server-id=1", "--binlog-format=ROW")
    session = server.connect("d")
    _run(session, "XA START 'x'", "INSERT INTO i VALUES (1, 1)", "INSERT INTO f VALUES (1, 1)")
    _run(session, "XA END 'x'", "XA PREPARE 'x'", "XA COMMIT 'x'")
    _run(session, "BEGIN", "INSERT INTO i VALUES (2, 2)", "INSERT INTO f VALUES (2, 2)", "COMMIT")
    session.close()
    for table in ("f", "i"):
        assert server.query(f"SELECT * FROM d.{table}") == ((1, 1), (2, 2))


def _until(server: Server, sql: str, wanted: object) -> None:
    """Waits until a query has this result."""
    deadline = time.monotonic() + 60
    while (found := server.query(sql)) != wanted:
        assert time.monotonic() < deadline, found
        time.sleep(0.02)


def test_a_prepared_transaction_blocks_others_after_its_session(
    own_server: Callable[..., Server], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Memory of ended sessions is freed and overwritten, so that a stale pointer fails."""
    monkeypatch.setenv("MALLOC_PERTURB_", "165")
    # With these options the server itself accesses the session that blocks the commit, and writes
    # to it.
    server = own_server(
        "--log-bin=bin", "--server-id=1", "--binlog-format=ROW", "--thread-cache-size=0",
        "--binlog-commit-wait-count=2", "--binlog-commit-wait-usec=1000",
    )  # fmt: skip
    server.query("CREATE DATABASE d")
    server.query(f"CREATE TABLE d.t (id INT PRIMARY KEY, v INT) ENGINE={ENGINE}")
    server.query("INSERT INTO d.t SELECT seq, 0 FROM seq_1_to_8")
    for n in range(1, 9):
        session = server.connect("d")
        _run(session, f"XA START 'x{n}'", f"UPDATE t SET v = 1 WHERE id = {n}")
        _run(session, f"XA END 'x{n}'", f"XA PREPARE 'x{n}'")
        session.close()

    # The server detaches the transactions before it takes their sessions off its list.
    sessions = "SELECT COUNT(*) FROM information_schema.processlist WHERE db = 'd'"
    _until(server, sessions, ((0,),))

    def update(n: int) -> None:
        session = server.connect("d")
        _run(session, f"UPDATE t SET v = v + 10 WHERE id = {n}")
        session.close()

    waiters = [threading.Thread(target=update, args=(n,)) for n in range(1, 9)]
    for waiter in waiters:
        waiter.start()
    waiting = (
        "SELECT COUNT(*) FROM information_schema.processlist WHERE info LIKE 'UPDATE t SET v%'"
    )
    _until(server, waiting, ((8,),))
    for n in range(1, 9):
        server.query(f"XA COMMIT 'x{n}'")
    for waiter in waiters:
        waiter.join()
    assert server.query("SELECT COUNT(*), MIN(v), MAX(v) FROM d.t") == ((8, 11, 11),)
    assert server.running()


@pytest.mark.skipif(not IS_FIRN, reason="other engines answer OK, 0 rows")
def test_a_delete_killed_while_it_is_planned_fails(server: Server) -> None:
    """The server may notice the kill outside the engine and still answer OK."""
    server.query("CREATE OR REPLACE DATABASE planned")
    server.query("CREATE TABLE planned.t (id INT PRIMARY KEY, k INT, KEY (k))")
    server.query("INSERT INTO planned.t SELECT seq, seq FROM seq_1_to_20000")
    session = server.connect("planned", autocommit=True)
    delete = f"DELETE FROM t WHERE k IN ({','.join(str(k) for k in range(1, 20001))})"
    ends: list[int] = []
    with session.cursor() as cursor, server.connect(autocommit=True).cursor() as killer:
        cursor.execute("SET eq_range_index_dive_limit = 0")
        for attempt in range(40):
            cursor.execute("BEGIN")
            kill = f"KILL QUERY {session.thread_id()}"
            timer = threading.Timer(0.005 * attempt, killer.execute, (kill,))
            timer.start()
            try:
                ends.append(cursor.execute(delete))
            except pymysql.err.MySQLError as error:
                assert error.args[0] == 1317, error
                ends.append(-1)
            timer.join()
            # A kill that comes late may hit the ROLLBACK, so repeat it.
            while True:
                try:
                    cursor.execute("ROLLBACK")
                    break
                except pymysql.err.MySQLError:
                    pass
    assert set(ends) <= {-1, 0, 20000}
    # Without the check in the engine, nearly all kills during the planning end like this.
    assert ends.count(0) <= ends.count(-1), ends
