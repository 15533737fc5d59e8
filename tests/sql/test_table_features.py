"""Features of tables that the engine must allow: exchange of partitions, types, versioning."""

from __future__ import annotations

from typing import Any

import pymysql
import pytest
from server import ENGINE, IS_FIRN, Server


def _outcome(session: pymysql.Connection[Any], sql: str) -> Any:
    """The rows of a statement, or its error."""
    with session.cursor() as cursor:
        try:
            cursor.execute(sql)
            return list(cursor.fetchall())
        except pymysql.err.MySQLError as error:
            return error.args


def _story(server: Server, database: str, engine: str, script: tuple[str, ...]) -> list[Any]:
    """The results that a session gets from the statements of a script, in a fresh database."""
    server.query(f"CREATE OR REPLACE DATABASE {database}")
    session = server.connect(database)
    told = []
    for sql in script:
        outcome = _outcome(session, sql.format(engine=engine))
        told.append((sql, str(outcome).replace(engine, "ENGINE")))
    session.close()
    return told


EXCHANGE = (
    "CREATE TABLE p (id INT AUTO_INCREMENT PRIMARY KEY, v TEXT, KEY v (v(10))) ENGINE={engine} "
    "PARTITION BY RANGE (id) (PARTITION a VALUES LESS THAN (100), "
    "PARTITION b VALUES LESS THAN (200))",
    "CREATE TABLE t (id INT AUTO_INCREMENT PRIMARY KEY, v TEXT, KEY v (v(10))) ENGINE={engine}",
    "INSERT INTO p SELECT seq, CONCAT('p', seq) FROM seq_1_to_150",
    "INSERT INTO t SELECT seq, CONCAT('t', seq) FROM seq_101_to_120",
    "ALTER TABLE p EXCHANGE PARTITION b WITH TABLE t",
    "SELECT COUNT(*), MIN(v), MAX(v) FROM p WHERE v LIKE 't%'",
    "SELECT COUNT(*), MIN(v), MAX(v) FROM t FORCE INDEX (v) WHERE v LIKE 'p%'",
    "INSERT INTO t (v) VALUES ('new')",
    "SELECT MAX(id) FROM t",
    "INSERT INTO p VALUES (150, 'back')",
    "UPDATE p SET v = 'changed' WHERE id = 101",
    "CHECK TABLE p EXTENDED",
    "CHECK TABLE t EXTENDED",
    "ALTER TABLE t ADD COLUMN w INT",
    "ALTER TABLE p EXCHANGE PARTITION b WITH TABLE t",
    "ALTER TABLE t DROP COLUMN w",
    "ALTER TABLE p EXCHANGE PARTITION a WITH TABLE t",
    "ALTER TABLE p EXCHANGE PARTITION b WITH TABLE t",
    "SELECT COUNT(*), SUM(id), MIN(v), MAX(v) FROM p",
    "SELECT COUNT(*), SUM(id), MIN(v), MAX(v) FROM t",
    "CREATE TABLE other (id INT AUTO_INCREMENT PRIMARY KEY, v TEXT) ENGINE={engine}",
    "ALTER TABLE p EXCHANGE PARTITION b WITH TABLE other",
    "ALTER TABLE t ADD INDEX i (id, v(5))",
    "ALTER TABLE p ADD INDEX i (id, v(5))",
    "ALTER TABLE p EXCHANGE PARTITION a WITH TABLE t WITHOUT VALIDATION",
    "SELECT COUNT(*), SUM(id), MIN(v), MAX(v) FROM t FORCE INDEX (i) WHERE id > 0",
    "SHOW CREATE TABLE t",
)


def test_partitions_are_exchanged_as_on_innodb(server: Server, database: str) -> None:
    ours = _story(server, database, ENGINE, EXCHANGE)
    assert ours == _story(server, database, "InnoDB", EXCHANGE)
    assert ours[4][1] == "[]"
    assert dict(ours)["SELECT COUNT(*), MIN(v), MAX(v) FROM p WHERE v LIKE 't%'"] == (
        "[(20, 't101', 't120')]"
    )


def test_exchanged_tables_survive_a_crash(own_server: Any) -> None:
    server: Server = own_server()
    server.query("CREATE DATABASE d")
    session = server.connect("d")
    for sql in EXCHANGE[:5]:
        outcome = _outcome(session, sql.format(engine=ENGINE))
        assert outcome == [], outcome
    server.crash_and_recover()
    assert server.query("SELECT COUNT(*), MIN(v) FROM d.t") == ((51, "p100"),)
    assert server.query("SELECT COUNT(*) FROM d.p WHERE v LIKE 't%%'") == ((20,),)
    for table in ("t", "p"):
        assert server.query(f"CHECK TABLE d.{table} EXTENDED")[0][3] == "OK"


VERSIONED = (
    "SET timestamp = 1600000000",
    "CREATE TABLE t (id INT PRIMARY KEY, v INT) ENGINE={engine} WITH SYSTEM VERSIONING",
    "INSERT INTO t VALUES (1, 1), (2, 2)",
    "SET timestamp = 1600000100",
    "UPDATE t SET v = 10 WHERE id = 1",
    "SET timestamp = 1600000200",
    "DELETE FROM t WHERE id = 2",
    "SELECT * FROM t",
    "SELECT id, v FROM t FOR SYSTEM_TIME AS OF FROM_UNIXTIME(1600000050) ORDER BY id",
    "SELECT id, v FROM t FOR SYSTEM_TIME AS OF FROM_UNIXTIME(1600000150) ORDER BY id",
    "SELECT id, v, UNIX_TIMESTAMP(ROW_START), UNIX_TIMESTAMP(ROW_END) FROM t "
    "FOR SYSTEM_TIME ALL ORDER BY id, v",
    "ALTER TABLE t PARTITION BY SYSTEM_TIME (PARTITION h HISTORY, PARTITION c CURRENT)",
    "SELECT COUNT(*) FROM t PARTITION (h)",
    "DELETE HISTORY FROM t BEFORE SYSTEM_TIME FROM_UNIXTIME(1600000150)",
    "SELECT id, v FROM t FOR SYSTEM_TIME ALL ORDER BY id, v",
    "CREATE TABLE e (id INT PRIMARY KEY, v INT, s TIMESTAMP(6) GENERATED ALWAYS AS ROW START, "
    "e TIMESTAMP(6) GENERATED ALWAYS AS ROW END, PERIOD FOR SYSTEM_TIME (s, e)) ENGINE={engine} "
    "WITH SYSTEM VERSIONING",
    "INSERT INTO e (id, v) VALUES (1, 1)",
    "REPLACE INTO e (id, v) VALUES (1, 2)",
    "SELECT id, v FROM e FOR SYSTEM_TIME ALL ORDER BY v",
    "TRUNCATE TABLE e",
)


def test_timestamp_versioning_is_as_on_innodb(server: Server, database: str) -> None:
    ours = _story(server, database, ENGINE, VERSIONED)
    assert ours == _story(server, database, "InnoDB", VERSIONED)
    assert dict(ours)[VERSIONED[10]].count("Decimal(") == 6


@pytest.mark.skipif(not IS_FIRN, reason="about FIRN itself")
def test_versioning_by_transactions_is_refused(connection: pymysql.Connection[Any]) -> None:
    columns = (
        "(id INT PRIMARY KEY, s BIGINT UNSIGNED GENERATED ALWAYS AS ROW START, "
        "e BIGINT UNSIGNED GENERATED ALWAYS AS ROW END, PERIOD FOR SYSTEM_TIME (s, e)) "
        "WITH SYSTEM VERSIONING"
    )
    number, message = _outcome(connection, f"CREATE TABLE t {columns} ENGINE={ENGINE}")
    assert number in (4118, 4110), message
    assert _outcome(connection, "SHOW TABLES") == []
    assert _outcome(connection, f"CREATE TABLE t {columns} ENGINE=InnoDB") == []
    number, message = _outcome(connection, f"ALTER TABLE t ENGINE={ENGINE}")
    assert number >= 1000
    assert number not in (1030, 1296), message
    assert "InnoDB" in _outcome(connection, "SHOW CREATE TABLE t")[0][1]


TYPES = (
    "CREATE TABLE t (id INT PRIMARY KEY, g GEOMETRY, p POINT NOT NULL, y POLYGON, i4 INET4, "
    "i6 INET6, u UUID, j JSON, KEY i4 (i4), KEY i6 (i6), KEY u (u), KEY g (g(20))) ENGINE={engine}",
    "INSERT INTO t VALUES (1, ST_GeomFromText('LINESTRING(0 0,1 1,2 2)'), POINT(1, 2), "
    "ST_GeomFromText('POLYGON((0 0,0 1,1 1,0 0))'), '10.0.0.1', '2001:db8::1', "
    "'123e4567-e89b-12d3-a456-426655440000', '{{\"a\": [1, 2]}}')",
    "INSERT INTO t VALUES (2, NULL, POINT(3, 4), NULL, '9.255.0.1', '::ffff:1.2.3.4', "
    "'023e4567-e89b-12d3-a456-426655440000', NULL)",
    "INSERT INTO t VALUES (3, NULL, POINT(3, 4), NULL, '11.0.0.1', '::', "
    "'f23e4567-e89b-12d3-a456-426655440000', '[]')",
    "INSERT INTO t VALUES (4, 'x', POINT(3, 4), NULL, '11.0.0.1', '::', NULL, NULL)",
    "INSERT INTO t VALUES (5, NULL, POINT(3, 4), NULL, 'no', '::', NULL, NULL)",
    "INSERT INTO t VALUES (6, NULL, POINT(3, 4), NULL, NULL, NULL, NULL, 'no json')",
    "SELECT id, ST_AsText(g), ST_AsText(p), ST_AsText(y), i4, i6, u, j FROM t ORDER BY id",
    "SELECT id FROM t FORCE INDEX (i4) WHERE i4 > '0.0.0.0' ORDER BY i4",
    "SELECT id FROM t FORCE INDEX (i6) WHERE i6 >= '::' ORDER BY i6 DESC",
    "SELECT id FROM t FORCE INDEX (u) WHERE u > '00000000-0000-0000-0000-000000000000' ORDER BY u",
    "SELECT id FROM t WHERE ST_Equals(p, POINT(1, 2))",
    "SELECT JSON_VALUE(j, '$.a[1]') FROM t WHERE id = 1",
    "UPDATE t SET g = p, u = '223e4567-e89b-12d3-a456-426655440000' WHERE id = 2",
    "SELECT id FROM t FORCE INDEX (u) WHERE u = '223e4567-e89b-12d3-a456-426655440000'",
    "ALTER TABLE t ADD COLUMN m MULTIPOINT, FORCE",
    "CHECK TABLE t EXTENDED",
    "SELECT id, ST_AsText(g), u FROM t ORDER BY id",
)


def test_types_are_stored_as_on_innodb(server: Server, database: str) -> None:
    ours = _story(server, database, ENGINE, TYPES)
    assert ours == _story(server, database, "InnoDB", TYPES)
    assert "LINESTRING(0 0,1 1,2 2)" in ours[7][1]
