"""Sequences: values as InnoDB gives them, outside the transaction, and never twice."""

from __future__ import annotations

import threading
import time
from typing import Any

import pymysql
import pytest
from server import ENGINE, IS_FIRN, Server, free_port


def _rows(session: pymysql.Connection[Any], sql: str) -> list[tuple[Any, ...]]:
    with session.cursor() as cursor:
        cursor.execute(sql)
        return list(cursor.fetchall())


def _run(session: pymysql.Connection[Any], *statements: str) -> None:
    for statement in statements:
        _rows(session, statement)


def _outcome(session: pymysql.Connection[Any], sql: str) -> Any:
    """The rows of a statement, or its error."""
    try:
        return _rows(session, sql)
    except pymysql.err.MySQLError as error:
        return error.args


SCRIPT = (
    "CREATE SEQUENCE s START WITH 5 INCREMENT BY 3 MAXVALUE 20 CACHE 2 ENGINE={engine}",
    "SHOW CREATE SEQUENCE s",
    "SELECT * FROM s",
    "SELECT LASTVAL(s)",
    "SELECT NEXTVAL(s), NEXTVAL(s), LASTVAL(s)",
    "SELECT next_not_cached_value FROM s",
    "SELECT SETVAL(s, 14)",
    "SELECT NEXTVAL(s)",
    "SELECT NEXTVAL(s)",
    "SELECT SETVAL(s, 3)",
    "ALTER SEQUENCE s CYCLE MINVALUE 2 CACHE 3",
    "SELECT NEXTVAL(s), NEXTVAL(s), NEXTVAL(s)",
    "SELECT * FROM s",
    "ALTER SEQUENCE s RESTART 8",
    "SELECT NEXT VALUE FOR s, PREVIOUS VALUE FOR s",
    "INSERT INTO s VALUES (7, 1, 100, 7, 1, 1, 0, 0)",
    "SELECT NEXTVAL(s)",
    "UPDATE s SET next_not_cached_value = 1",
    "DELETE FROM s",
    "TRUNCATE TABLE s",
    "CREATE TABLE t (id BIGINT DEFAULT NEXTVAL(s) PRIMARY KEY, v INT) ENGINE={engine}",
    "INSERT INTO t (v) VALUES (1), (2), (3)",
    "SELECT * FROM t",
    "DROP SEQUENCE s",
    "INSERT INTO t (v) VALUES (4)",
    "CREATE SEQUENCE d INCREMENT BY -1 MINVALUE -2 NOCACHE ENGINE={engine}",
    "SELECT NEXTVAL(d), NEXTVAL(d)",
    "SELECT NEXTVAL(d)",
    "RENAME TABLE d TO e",
    "SELECT SETVAL(e, -1, 0)",
    "CHECK TABLE e",
    "DROP TABLE e, t",
)


def test_sequences_behave_as_on_innodb(server: Server, database: str) -> None:
    told = {}
    for engine in ("InnoDB", ENGINE):
        server.query(f"CREATE OR REPLACE DATABASE {database}")
        session = server.connect(database)
        told[engine] = [
            (sql, str(_outcome(session, sql.format(engine=engine))).replace(engine, "ENGINE"))
            for sql in SCRIPT
        ]
        session.close()
    assert told[ENGINE] == told["InnoDB"]
    values = dict(told[ENGINE])
    assert values["SELECT NEXTVAL(s), NEXTVAL(s), LASTVAL(s)"] == "[(5, 8, 8)]"


TEMPORARY_SCRIPT = (
    "create temporary sequence s start with 5 increment by 3",
    "select nextval(s), nextval(s)",
    "select lastval(s)",
    "show create table s",
    "select * from s",
    "begin",
    "select nextval(s)",
    "rollback",
    "select nextval(s)",
    "alter sequence s restart 100",
    "select nextval(s), setval(s, 500)",
    "select nextval(s)",
    "check table s",
    "create temporary table t (a int default nextval(s), b int)",
    "insert into t(b) values (1),(2)",
    "select * from t",
    "drop table t",
    "drop temporary sequence s",
    "create temporary sequence s nocache",
    "select nextval(s)",
    "select * from s",
    "rename table s to s2",
    "select nextval(s2)",
    "set session transaction read only",
    "select nextval(s2)",
    "set session transaction read write",
    "select nextval(s2)",
    "create sequence s3 start with 900",
    "create temporary sequence s3 start with 100",
    "select nextval(s3)",
    "drop sequence s3",
    "select nextval(s3)",
    "drop sequence s3",
    "create temporary table n (a int)",
    "create or replace temporary sequence n",
    "select nextval(n)",
    "alter table n engine=myisam",
    "select nextval(n)",
    "alter table n engine={engine}",
    "select nextval(n)",
    "truncate table n",
    "set transaction isolation level serializable",
    "select nextval(n)",
    "begin",
    "create temporary sequence z",
    "select nextval(z)",
    "drop temporary sequence z",
    "commit",
    "insert into n values (1,2,3,4,5,6,7,8)",
    "insert into n values (5,1,100,5,1,0,0,0)",
    "select nextval(n)",
    "delete from n",
    "update n set cycle_option=1",
    "select * from n",
)


def test_temporary_sequences_behave_as_on_innodb(server: Server, database: str) -> None:
    told = {}
    for engine in ("InnoDB", ENGINE):
        session = server.connect(database)
        _run(session, f"SET default_storage_engine={engine}")
        said = []
        for statement in TEMPORARY_SCRIPT:
            outcome = _outcome(session, statement.format(engine=engine))
            said.append((statement, str(outcome).replace(engine, "ENGINE")))
        told[engine] = said
        session.close()
    assert told[ENGINE] == told["InnoDB"]
    assert ("select nextval(s), nextval(s)", "[(5, 8)]") in told[ENGINE]


@pytest.mark.skipif(not IS_FIRN, reason="about FIRN itself")
def test_a_temporary_sequence_ends_with_its_session(server: Server, database: str) -> None:
    first, second = server.connect(database), server.connect(database)
    for session in (first, second):
        _run(session, f"CREATE TEMPORARY SEQUENCE s ENGINE={ENGINE}")
    assert _rows(first, "SELECT NEXTVAL(s), NEXTVAL(s)") == [(1, 2)]
    assert _rows(second, "SELECT NEXTVAL(s)") == [(1,)]
    first.close()
    second.close()
    third = server.connect(database)
    assert _outcome(third, "SELECT NEXTVAL(s)")[0] == 4091
    third.close()


@pytest.mark.parametrize("isolation", ["READ COMMITTED", "REPEATABLE READ", "SERIALIZABLE"])
def test_a_value_is_gone_at_once_and_for_good(
    server: Server, database: str, isolation: str
) -> None:
    session, other = server.connect(database), server.connect(database)
    _run(session, f"CREATE SEQUENCE s NOCACHE ENGINE={ENGINE}")
    _run(session, f"CREATE TABLE t (id INT PRIMARY KEY) ENGINE={ENGINE}")
    _run(session, f"CREATE TABLE other (id INT PRIMARY KEY) ENGINE={ENGINE}")
    for one in (session, other):
        _run(one, f"SET SESSION TRANSACTION ISOLATION LEVEL {isolation}", "BEGIN")
        # Fixes the snapshot before the values are taken.
        _run(one, "SELECT * FROM other")
    assert _rows(session, "SELECT NEXTVAL(s)") == [(1,)]
    # The other session does not wait for the open transaction, and sees the value taken.
    assert _rows(other, "SELECT next_not_cached_value FROM s") == [(2,)]
    assert _rows(other, "SELECT NEXTVAL(s)") == [(2,)]
    assert _rows(session, "SELECT next_not_cached_value FROM s") == [(3,)]
    _run(session, "INSERT INTO t VALUES (NEXTVAL(s))", "SAVEPOINT p", "SELECT NEXTVAL(s)")
    _run(session, "ROLLBACK TO p", "ROLLBACK")
    assert _rows(session, "SELECT * FROM t") == []
    assert _rows(session, "SELECT NEXTVAL(s)") == [(5,)]
    _run(other, "ROLLBACK")
    assert _rows(other, "SELECT NEXTVAL(s)") == [(6,)]
    session.close()
    other.close()


def test_a_failed_statement_keeps_its_values(server: Server, database: str) -> None:
    session = server.connect(database)
    _run(
        session,
        f"CREATE SEQUENCE s NOCACHE ENGINE={ENGINE}",
        f"CREATE TABLE t (id INT DEFAULT NEXTVAL(s) PRIMARY KEY, v INT UNIQUE) ENGINE={ENGINE}",
        "INSERT INTO t (v) VALUES (1)",
    )
    assert _outcome(session, "INSERT INTO t (v) VALUES (2), (3), (1)")[0] == 1062
    _run(session, "INSERT INTO t (v) VALUES (4)")
    assert _rows(session, "SELECT * FROM t ORDER BY id") == [(1, 1), (5, 4)]
    session.close()


def test_many_sessions_get_different_values(server: Server, database: str) -> None:
    server.query(f"CREATE SEQUENCE {database}.s CACHE 3 ENGINE={ENGINE}")
    taken: list[int] = []

    def take() -> None:
        session = server.connect(database)
        own = []
        for number in range(200):
            _run(session, "BEGIN")
            own.append(_rows(session, "SELECT NEXTVAL(s)")[0][0])
            _run(session, "ROLLBACK" if number % 2 else "COMMIT")
        taken.extend(own)
        session.close()

    threads = [threading.Thread(target=take) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(taken) == list(range(1, 1601))


def test_under_lock_tables(server: Server, database: str) -> None:
    session = server.connect(database)
    _run(
        session,
        f"CREATE SEQUENCE s NOCACHE ENGINE={ENGINE}",
        f"CREATE TABLE t (id INT DEFAULT NEXTVAL(s) PRIMARY KEY, v INT) ENGINE={ENGINE}",
        "LOCK TABLES t WRITE, s WRITE",
    )
    for value in range(1, 4):
        _run(session, f"INSERT INTO t (v) VALUES ({value})")
        assert _rows(session, "SELECT next_not_cached_value FROM s") == [(value * 2,)]
        assert _rows(session, "SELECT NEXTVAL(s)") == [(value * 2,)]
    _run(session, "UNLOCK TABLES")
    assert _rows(session, "SELECT id FROM t") == [(1,), (3,), (5,)]
    session.close()


def test_two_sequences_in_one_statement(server: Server, database: str) -> None:
    session = server.connect(database)
    _run(
        session,
        f"CREATE SEQUENCE a NOCACHE ENGINE={ENGINE}",
        f"CREATE SEQUENCE b NOCACHE START WITH 100 ENGINE={ENGINE}",
        f"CREATE TABLE t (x INT, y INT) ENGINE={ENGINE}",
        "INSERT INTO t SELECT NEXTVAL(a), NEXTVAL(b) FROM seq_1_to_50",
    )
    assert _rows(session, "SELECT * FROM t ORDER BY x") == [(n, 99 + n) for n in range(1, 51)]
    joined = "SELECT a.next_not_cached_value, NEXTVAL(b) FROM a, seq_1_to_3"
    assert [row[1] for row in _rows(session, joined)] == [150, 151, 152]
    session.close()


def test_change_of_the_engine(server: Server, database: str) -> None:
    session = server.connect(database)
    _run(session, "CREATE SEQUENCE s CACHE 10 ENGINE=InnoDB")
    assert _rows(session, "SELECT NEXTVAL(s)") == [(1,)]
    _run(session, f"ALTER TABLE s ENGINE={ENGINE}")
    assert f"ENGINE={ENGINE}" in _rows(session, "SHOW CREATE SEQUENCE s")[0][1]
    first = _rows(session, "SELECT NEXTVAL(s)")[0][0]
    assert first > 1
    _run(session, "ALTER TABLE s ENGINE=InnoDB")
    assert _rows(session, "SELECT NEXTVAL(s)")[0][0] > first
    session.close()


def test_no_value_comes_again_after_a_crash(own_server: Any) -> None:
    server: Server = own_server("--log-bin", "--sync-binlog=1")
    server.query("CREATE DATABASE d")
    server.query(f"CREATE SEQUENCE d.s CACHE 4 ENGINE={ENGINE}")
    server.query(f"CREATE TABLE d.t (id INT PRIMARY KEY) ENGINE={ENGINE}")
    seen: list[int] = []
    lock = threading.Lock()

    def take(transactions: bool) -> None:
        try:
            session = server.connect("d")
            while True:
                if transactions:
                    _run(session, "BEGIN")
                value = _rows(session, "SELECT NEXTVAL(s)")[0][0]
                with lock:
                    seen.append(value)
        except pymysql.err.MySQLError:
            return

    for _ in range(3):
        before = len(seen)
        threads = [threading.Thread(target=take, args=(way,)) for way in (True, False)]
        for thread in threads:
            thread.start()
        deadline = time.monotonic() + 60
        while len(seen) < before + 60:
            assert time.monotonic() < deadline, len(seen) - before
            time.sleep(0.005)
        server.kill()
        for thread in threads:
            thread.join()
        server.start()
        assert len(set(seen)) == len(seen)
        value = server.query("SELECT NEXTVAL(d.s)")[0][0]
        assert value > max(seen)
        seen.append(value)


@pytest.mark.skipif(not IS_FIRN, reason="about FIRN itself")
def test_a_copy_of_the_files_has_the_values(own_server: Any) -> None:
    """A checkpoint has what was handed out before it."""
    server: Server = own_server()
    server.query("CREATE DATABASE d")
    server.query(f"CREATE SEQUENCE d.s NOCACHE ENGINE={ENGINE}")
    assert [server.query("SELECT NEXTVAL(d.s)")[0][0] for _ in range(3)] == [1, 2, 3]
    server.restart()
    assert server.query("SELECT NEXTVAL(d.s)") == ((4,),)


@pytest.mark.parametrize("binlog_format", ["ROW", "MIXED"])
def test_a_replica_goes_on_where_the_primary_stopped(own_server: Any, binlog_format: str) -> None:
    port = free_port()
    primary: Server = own_server(
        "--server-id=1",
        "--log-bin",
        f"--binlog-format={binlog_format}",
        "--skip-networking=0",
        "--bind-address=127.0.0.1",
        f"--port={port}",
    )
    replica: Server = own_server("--server-id=2", "--log-bin", "--slave-parallel-threads=4")
    primary.query("CREATE USER r@'%' IDENTIFIED BY 'p'")
    primary.query("GRANT REPLICATION SLAVE ON *.* TO r@'%'")
    replica.query(
        f"CHANGE MASTER TO master_host='127.0.0.1', master_port={port}, master_user='r', "
        "master_password='p', master_use_gtid=slave_pos, master_connect_retry=1"
    )
    replica.query("START SLAVE")
    primary.query("CREATE DATABASE d")
    session = primary.connect("d")
    _run(
        session,
        f"CREATE SEQUENCE s CACHE 5 ENGINE={ENGINE}",
        f"CREATE SEQUENCE c MAXVALUE 7 CYCLE NOCACHE ENGINE={ENGINE}",
        f"CREATE TABLE t (id INT DEFAULT NEXTVAL(s) PRIMARY KEY, v INT) ENGINE={ENGINE}",
        "INSERT INTO t (v) SELECT seq FROM seq_1_to_23",
        "BEGIN",
        "INSERT INTO t (v) VALUES (0)",
        "SELECT NEXTVAL(s)",
        "ROLLBACK",
        "DO SETVAL(s, 50)",
        "INSERT INTO t (v) VALUES (1)",
        "ALTER SEQUENCE s INCREMENT BY 2",
        "INSERT INTO t (v) VALUES (2), (3)",
    )
    _rows(session, "SELECT NEXTVAL(c) FROM seq_1_to_10")
    position = _rows(session, "SELECT @@gtid_binlog_pos")[0][0]
    assert replica.query("SELECT MASTER_GTID_WAIT(%s, 60)", (position,)) == ((0,),)
    rows = _rows(session, "SELECT * FROM t ORDER BY id")
    assert list(replica.query("SELECT * FROM d.t ORDER BY id")) == rows
    stored = "SELECT * FROM d.{}"
    for name in ("s", "c"):
        assert replica.query(stored.format(name)) == primary.query(stored.format(name))
    replica.query("STOP SLAVE")
    replica.crash_and_recover()
    # The primary is gone: the replica hands out nothing that the primary may have handed out.
    assert replica.query("SELECT NEXTVAL(d.s)")[0][0] > rows[-1][0]
    session.close()
