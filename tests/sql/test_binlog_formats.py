"""FIRN's changes enter the binary log as InnoDB's do, at each isolation level and in each
format."""

from __future__ import annotations

from typing import Any

import pymysql
from server import ENGINE, Server

LEVELS = ["READ UNCOMMITTED", "READ COMMITTED", "REPEATABLE READ", "SERIALIZABLE"]
FORMATS = ["STATEMENT", "MIXED", "ROW"]
STATEMENTS = [
    "INSERT INTO # VALUES (1, 10), (2, 20), (3, 30)",
    "UPDATE # SET v = v + 1 WHERE id > 1",
    # The result of RAND() is not deterministic, so MIXED logs rows. It never equals the value
    # before: an update that changes nothing logs nothing.
    "UPDATE # SET v = 100 + RAND() * 1000 WHERE id = 1",
    "INSERT INTO # SELECT id + 10, v FROM # AS source WHERE id < 3",
    "DELETE FROM # WHERE id = 3",
    "REPLACE INTO # VALUES (2, 22)",
    "INSERT INTO # VALUES (1, 5) ON DUPLICATE KEY UPDATE v = 5",
    "BEGIN",
    "INSERT INTO # VALUES (50, 1)",
    "SAVEPOINT s",
    "INSERT INTO # VALUES (51, 1)",
    "ROLLBACK TO SAVEPOINT s",
    "COMMIT",
    "CREATE TABLE #_copy SELECT * FROM # WHERE id < 3",
    "TRUNCATE TABLE #",
    "DROP TABLE #_copy",
]


def _run(session: pymysql.Connection[Any], statement: str) -> tuple[int, int]:
    """The error number of a statement (0 if it succeeds), and the number of its rows."""
    with session.cursor() as cursor:
        try:
            return 0, cursor.execute(statement)
        except pymysql.MySQLError as error:
            return int(error.args[0]), 0


def _events(session: pymysql.Connection[Any], since: tuple[str, int]) -> list[str]:
    with session.cursor() as cursor:
        cursor.execute(f"SHOW BINLOG EVENTS IN '{since[0]}' FROM {since[1]}")
        return [str(row[2]) for row in cursor.fetchall()]


def _position(session: pymysql.Connection[Any]) -> tuple[str, int]:
    with session.cursor() as cursor:
        cursor.execute("SHOW MASTER STATUS")
        row = cursor.fetchone()
    return str(row[0]), int(row[1])


def test_errors_and_events_are_innodbs(own_server: Any) -> None:
    server = own_server("--log-bin=bin", "--server-id=1")
    server.query("CREATE DATABASE d")
    for level in LEVELS:
        for binlog_format in FORMATS:
            _compare(server, level, binlog_format)


def _compare(server: Server, level: str, binlog_format: str) -> None:
    told: dict[str, list[Any]] = {}
    for engine in ("InnoDB", ENGINE):
        session = server.connect("d")
        table = f"t_{engine.lower()}"
        create = f"CREATE TABLE {table} (id INT PRIMARY KEY, v INT, KEY (v)) ENGINE={engine}"
        setup = (
            f"SET default_storage_engine = {engine}",
            f"SET SESSION TRANSACTION ISOLATION LEVEL {level}",
            f"SET binlog_format = {binlog_format}",
            f"DROP TABLE IF EXISTS {table}, {table}_copy",
        )
        for statement in (*setup, create):
            assert _run(session, statement)[0] == 0, statement
        results = told.setdefault(engine, [])
        for statement in STATEMENTS:
            since = _position(session)
            result = _run(session, statement.replace("#", table))
            results.append((statement, *result, _events(session, since)))
        session.close()
    for innodb, firn in zip(told["InnoDB"], told[ENGINE], strict=True):
        assert innodb == firn, f"{level}, {binlog_format}"
    refused = [number for _, number, _, _ in told[ENGINE] if number]
    # At READ COMMITTED and READ UNCOMMITTED, the server refuses to log changes as statements, for
    # both engines.
    below = level.startswith("READ")
    assert (1665 in refused) == (below and binlog_format == "STATEMENT"), refused
