"""ROLLBACK TO SAVEPOINT gives metadata locks back as on InnoDB."""

from __future__ import annotations

import pymysql
import pytest
from server import Server

ENGINES = ("InnoDB", "FIRN")
LOCK_WAIT_TIMEOUT = 1205


def _error_of_drop(server: Server, engine: str, before: str, since: str, wait: int) -> int:
    """The error of DROP TABLE in another session, after a rollback to a savepoint behind `before`
    that takes back `since`. The DROP waits for locks for `wait` seconds."""
    server.query(f"CREATE OR REPLACE DATABASE kept_{engine[:2]}")
    session = server.connect(f"kept_{engine[:2]}")
    other = server.connect(f"kept_{engine[:2]}")
    with session.cursor() as cursor, other.cursor() as ddl:
        for sql in (
            f"CREATE TABLE t (id INT PRIMARY KEY, v INT) ENGINE={engine}",
            f"CREATE TABLE first (id INT PRIMARY KEY) ENGINE={engine}",
            "INSERT INTO t VALUES (1, 1)",
            "BEGIN",
            before,
            "SAVEPOINT s",
            since,
            "ROLLBACK TO SAVEPOINT s",
        ):
            cursor.execute(sql)
        ddl.execute(f"SET lock_wait_timeout = {wait}")
        error = 0
        try:
            ddl.execute("DROP TABLE t")
        except pymysql.err.MySQLError as refused:
            error = refused.args[0]
        cursor.execute("ROLLBACK")
    session.close()
    other.close()
    return error


@pytest.mark.parametrize("before", ["DO 1", "SELECT * FROM first"])
def test_ddl_waits_only_for_what_a_rollback_to_a_savepoint_keeps(
    server: Server, before: str
) -> None:
    for since, kept in (
        ("SELECT * FROM t", 0),
        ("SELECT * FROM t FOR UPDATE", LOCK_WAIT_TIMEOUT),
        ("SELECT * FROM t WHERE id = 7 LOCK IN SHARE MODE", LOCK_WAIT_TIMEOUT),
        ("UPDATE t SET v = 2", LOCK_WAIT_TIMEOUT),
    ):
        # Behind a savepoint at which no engine has taken part, all is given back.
        error = 0 if before == "DO 1" else kept
        # A DROP that succeeds may have to wait for threads that use InnoDB's table in the
        # background.
        wait = 1 if error else 60
        for engine in ENGINES:
            assert _error_of_drop(server, engine, before, since, wait) == error, (engine, since)
