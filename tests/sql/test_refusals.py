"""The engine refuses unsupported statements with an error; it never executes one partially.

Where a feature may come later, the test accepts both a refusal and the feature.
"""

from __future__ import annotations

from typing import Any

import pymysql
import pytest
from server import ENGINE, IS_FIRN, Server


@pytest.fixture(autouse=True)
def firn() -> None:
    """Skips the tests for InnoDB, which has the features."""
    if not IS_FIRN:
        pytest.skip("about FIRN itself")


def _error(connection: pymysql.Connection[Any], sql: str) -> tuple[int, str]:
    """The error of a statement, or (0, '') if it succeeds."""
    with connection.cursor() as cursor:
        try:
            cursor.execute(sql)
        except pymysql.err.MySQLError as error:
            return int(error.args[0]), str(error.args[1])
    return 0, ""


def _rows(connection: pymysql.Connection[Any], sql: str) -> list[tuple[Any, ...]]:
    with connection.cursor() as cursor:
        cursor.execute(sql)
        return list(cursor.fetchall())


def _tables(connection: pymysql.Connection[Any]) -> set[str]:
    return {row[0] for row in _rows(connection, "SHOW TABLES")}


def _refused(connection: pymysql.Connection[Any], sql: str) -> None:
    number, message = _error(connection, sql)
    assert number >= 1000, f"accepted: {sql}"
    # 1030 and 1296 are generic errors, which the server makes of a handler's error number without a
    # text.
    assert number not in (1030, 1296), f"not a clear error: {number} {message}"
    assert len(message) > 15, message


CREATES = {
    "foreign key with system versioning": (
        "CREATE TABLE x (id INT PRIMARY KEY, p INT, FOREIGN KEY (p) REFERENCES parent (id)) "
        "WITH SYSTEM VERSIONING"
    ),
    "foreign key to a table with system versioning": (
        "CREATE TABLE x (id INT PRIMARY KEY, p INT, FOREIGN KEY (p) REFERENCES versioned (id))"
    ),
    "fulltext": "CREATE TABLE x (id INT PRIMARY KEY, t TEXT, FULLTEXT KEY (t))",
    "spatial": "CREATE TABLE x (id INT PRIMARY KEY, g POINT NOT NULL, SPATIAL KEY (g))",
}


@pytest.mark.parametrize("feature", CREATES)
def test_create_table_refuses(connection: pymysql.Connection[Any], feature: str) -> None:
    assert _error(connection, f"CREATE TABLE parent (id INT PRIMARY KEY) ENGINE={ENGINE}")[0] == 0
    versioned = "CREATE TABLE versioned (id INT PRIMARY KEY)"
    assert _error(connection, f"{versioned} ENGINE={ENGINE} WITH SYSTEM VERSIONING")[0] == 0
    _refused(connection, f"{CREATES[feature]} ENGINE={ENGINE}")
    assert _tables(connection) == {"parent", "versioned"}
    # The refused statement left nothing behind, so the name is free.
    assert _error(connection, f"CREATE TABLE x (id INT) ENGINE={ENGINE}") == (0, "")
    assert _error(connection, "DROP TABLE x, parent, versioned") == (0, "")


ALTERS = {
    "fulltext": "ALTER TABLE t ADD FULLTEXT KEY (v)",
    "create fulltext": "CREATE FULLTEXT INDEX f ON t (v)",
    "spatial": "ALTER TABLE t ADD SPATIAL KEY (g)",
}


@pytest.mark.parametrize("feature", ALTERS)
def test_alter_table_refuses(connection: pymysql.Connection[Any], feature: str) -> None:
    for sql in (
        f"CREATE TABLE parent (id INT PRIMARY KEY) ENGINE={ENGINE}",
        f"CREATE TABLE t (id INT PRIMARY KEY, p INT, v TEXT, g POINT NOT NULL) ENGINE={ENGINE}",
        "INSERT INTO t VALUES (1, NULL, 'x', POINT(1, 1))",
    ):
        assert _error(connection, sql) == (0, "")
    before = _rows(connection, "SHOW CREATE TABLE t")
    _refused(connection, ALTERS[feature])
    assert _rows(connection, "SHOW CREATE TABLE t") == before
    assert _rows(connection, "SELECT id, v FROM t") == [(1, "x")]
    assert _error(connection, "INSERT INTO t VALUES (2, NULL, 'y', POINT(1, 1))") == (0, "")


def test_an_innodb_table_with_a_foreign_key_cannot_become_firn(
    connection: pymysql.Connection[Any],
) -> None:
    for sql in (
        "CREATE TABLE parent (id INT PRIMARY KEY) ENGINE=InnoDB",
        "CREATE TABLE t (id INT PRIMARY KEY, p INT, FOREIGN KEY (p) REFERENCES parent (id)) "
        "ENGINE=InnoDB",
    ):
        assert _error(connection, sql) == (0, "")
    _refused(connection, f"ALTER TABLE t ENGINE={ENGINE}")
    assert "FOREIGN KEY" in _rows(connection, "SHOW CREATE TABLE t")[0][1]
    _refused(connection, f"ALTER TABLE parent ENGINE={ENGINE}")


def test_key_limits_are_errors(connection: pymysql.Connection[Any]) -> None:
    long = "VARCHAR(3073) CHARACTER SET latin1"
    number, _ = _error(connection, f"CREATE TABLE x (a {long}, PRIMARY KEY (a)) ENGINE={ENGINE}")
    assert number == 1071
    fits = "VARCHAR(3072) CHARACTER SET latin1"
    sql = f"CREATE TABLE x (a {fits}, PRIMARY KEY (a)) ENGINE={ENGINE}"
    assert _error(connection, sql) == (0, "")
    assert _error(connection, "INSERT INTO x VALUES (REPEAT('a', 3072))") == (0, "")
    assert _error(connection, "INSERT INTO x VALUES (REPEAT('a', 3072))")[0] == 1062


@pytest.mark.parametrize("feature", CREATES)
def test_temporary_tables_lack_the_same(connection: pymysql.Connection[Any], feature: str) -> None:
    assert _error(connection, f"CREATE TABLE parent (id INT PRIMARY KEY) ENGINE={ENGINE}")[0] == 0
    sql = CREATES[feature].replace("CREATE TABLE", "CREATE TEMPORARY TABLE")
    _refused(connection, f"{sql} ENGINE={ENGINE}")
    assert _error(connection, "SELECT * FROM x")[0] == 1146
    assert _error(connection, f"CREATE TEMPORARY TABLE x (id INT) ENGINE={ENGINE}") == (0, "")
    assert _error(connection, "DROP TEMPORARY TABLE x") == (0, "")


def test_a_snapshot_at_serializable_is_for_sessions_of_other_engines_too(
    server: Server, database: str
) -> None:
    """The server requests the snapshot from every engine, even if the session does not use it."""
    server.query(f"CREATE TABLE {database}.t (id INT PRIMARY KEY) ENGINE={ENGINE}")
    server.query(f"CREATE TABLE {database}.other (id INT PRIMARY KEY) ENGINE=InnoDB")
    server.query(f"INSERT INTO {database}.t VALUES (1)")
    session = server.connect(database)
    for sql in (
        "SET tx_isolation = 'SERIALIZABLE'",
        "START TRANSACTION WITH CONSISTENT SNAPSHOT",
        "INSERT INTO other VALUES (1)",
    ):
        assert _error(session, sql) == (0, "")
    assert _rows(session, "SELECT * FROM t") == [(1,)]
    assert _error(session, "COMMIT") == (0, "")
    assert _rows(session, "SELECT * FROM other") == [(1,)]
    # HANDLER locks no rows; it reads the transaction's snapshot.
    assert _error(session, "START TRANSACTION WITH CONSISTENT SNAPSHOT") == (0, "")
    server.query(f"INSERT INTO {database}.t VALUES (2)")
    assert _error(session, "HANDLER t OPEN") == (0, "")
    assert _rows(session, "HANDLER t READ FIRST LIMIT 10") == [(1,)]
    session.close()


def test_geometries_become_empty_where_innodb_allows_it(server: Server, database: str) -> None:
    """Without strict mode, the server stores an empty value in place of NULL."""
    told = []
    for engine in ("InnoDB", ENGINE):
        session = server.connect(database)
        table = f"g_{engine}"
        columns = "id INT PRIMARY KEY, p POINT NOT NULL, q POINT"
        for sql in (
            "SET sql_mode = ''",
            f"CREATE TABLE {table} ({columns}) ENGINE={engine}",
            f"INSERT INTO {table} VALUES (1, POINT(1, 2), NULL), (2, POINT(3, 4), POINT(5, 6))",
        ):
            assert _error(session, sql) == (0, "")
        changes = (
            f"INSERT INTO {table} SELECT id + 10, q, p FROM {table} WHERE id = 1",
            f"REPLACE INTO {table} SELECT id, q, p FROM {table} WHERE id = 1",
            f"UPDATE {table} SET p = q WHERE id = 1",
            f"UPDATE {table} SET q = NULL WHERE id = 2",
            f"UPDATE {table} SET q = p WHERE id = 11",
            f"UPDATE {table} SET p = POINT(7, 8) WHERE id = 11",
        )
        rows = f"SELECT id, LENGTH(p), LENGTH(q) FROM {table} ORDER BY id"
        told.append([(_error(session, change), _rows(session, rows)) for change in changes])
        session.close()
    assert told[0] == told[1]
    assert 1416 in [error for (error, _), _ in told[0]]
