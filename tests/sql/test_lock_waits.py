"""The effect of lock waits on sessions and tools: timeouts by InnoDB's variable, the slow log."""

from __future__ import annotations

import time
from typing import Any

import pymysql
import pytest
from server import ENGINE, Server

pytestmark = pytest.mark.skipif(ENGINE.upper() != "FIRN", reason="about variables of FIRN")


def _run(session: pymysql.Connection[Any], *statements: str) -> None:
    with session.cursor() as cursor:
        for statement in statements:
            cursor.execute(statement)


def _table(server: Server, database: str) -> pymysql.Connection[Any]:
    """Creates `t`; returns a session that has locked the row 1 and the gap behind it."""
    holder = server.connect(database)
    _run(
        holder,
        f"CREATE TABLE t (id INT PRIMARY KEY, v INT) ENGINE={ENGINE}",
        "INSERT INTO t VALUES (1, 1)",
        "BEGIN",
        "SELECT * FROM t WHERE id >= 1 FOR UPDATE",
    )
    return holder


@pytest.mark.parametrize(
    "statement", ["UPDATE t SET v = 2 WHERE id = 1", "INSERT INTO t VALUES (2, 2)"]
)
def test_the_timeout_that_a_tool_sets_for_innodb_counts(
    server: Server, database: str, statement: str
) -> None:
    holder = _table(server, database)
    tool = server.connect(database)
    _run(tool, "SET innodb_lock_wait_timeout = 1")
    begun = time.monotonic()
    with pytest.raises(pymysql.err.OperationalError) as caught:
        _run(tool, statement)
    assert caught.value.args[0] == 1205
    # The timeout was much shorter than the 50 seconds of firn_lock_wait_timeout.
    assert time.monotonic() - begun < 49
    tool.close()
    holder.close()


def test_the_own_timeout_of_a_session_counts_more(server: Server, database: str) -> None:
    holder = _table(server, database)
    session = server.connect(database)
    _run(session, "SET innodb_lock_wait_timeout = 1000, firn_lock_wait_timeout = 1")
    begun = time.monotonic()
    with pytest.raises(pymysql.err.OperationalError) as caught:
        _run(session, "UPDATE t SET v = 2 WHERE id = 1")
    assert caught.value.args[0] == 1205
    assert time.monotonic() - begun < 49
    session.close()
    holder.close()


def test_the_slow_log_shows_the_time_in_lock_waits(own_server: Any) -> None:
    server = own_server("--log-output=TABLE", "--slow-query-log=1", "--long-query-time=0")
    server.query("CREATE DATABASE d")
    holder = _table(server, "d")
    session = server.connect("d")
    # The log's column has whole seconds, which are rounded down.
    _run(session, "SET firn_lock_wait_timeout = 2")
    with pytest.raises(pymysql.err.OperationalError):
        _run(session, "UPDATE t SET v = 2 WHERE id = 1")
    with session.cursor() as cursor:
        cursor.execute(
            "SELECT TIME_TO_SEC(lock_time) FROM mysql.slow_log "
            "WHERE sql_text LIKE 'UPDATE t SET v = 2%'"
        )
        assert [row[0] >= 1 for row in cursor.fetchall()] == [True]
    session.close()
    holder.close()
