"""Temporary tables: the same statements on InnoDB and on the engine, in one server."""

from __future__ import annotations

import os
import random
import socket
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pymysql
import pytest
from server import ENGINE, IS_FIRN, Server, free_port

# Random statements, unless FIRN_TEST_SECONDS is the time for them.
STATEMENTS = 1200

Row = tuple[Any, ...]
# Error number or 0, affected rows, rows, numbers of the warnings.
Answer = tuple[int, int, tuple[Row, ...], tuple[int, ...]]


def _answer(connection: pymysql.Connection[Any], sql: str) -> Answer:
    with connection.cursor() as cursor:
        try:
            affected = cursor.execute(sql)
        except pymysql.MySQLError as error:
            return int(error.args[0]), 0, (), ()
        rows = tuple(cursor.fetchall()) if cursor.description else ()
        cursor.execute("SHOW WARNINGS")
        return 0, affected, rows, tuple(int(warning[1]) for warning in cursor.fetchall())


class Pair:
    """One session with InnoDB and one with the engine under test, in databases of their own."""

    def __init__(self, server: Server, **options: Any) -> None:
        self.server = server
        # Statements on temporary tables mean ordinary ones in the session of InnoDB.
        self.ordinary_reference = False
        self.sessions: dict[str, pymysql.Connection[Any]] = {}
        for engine in ("InnoDB", ENGINE):
            database = f"temporary_{engine[:3].lower()}"
            server.query(f"DROP DATABASE IF EXISTS {database}")
            server.query(f"CREATE DATABASE {database}")
            self.sessions[engine] = server.connect(database, **options)
            _answer(self.sessions[engine], f"SET default_storage_engine = {engine}")

    def run(self, *statements: str) -> Answer:
        """Runs the statements on both, compares the answers, and returns the last one."""
        last: Answer = (0, 0, (), ())
        for sql in statements:
            answers = [
                _normal(_answer(session, self._text(sql, engine)), engine)
                for engine, session in self.sessions.items()
            ]
            assert answers[0] == answers[1], f"{sql}: InnoDB {answers[0]}, {ENGINE} {answers[1]}"
            last = answers[1]
        return last

    def _text(self, sql: str, engine: str) -> str:
        if self.ordinary_reference and engine == "InnoDB":
            sql = sql.replace("TEMPORARY TABLE", "TABLE")
        return sql.replace("@engine", engine)

    def ok(self, *statements: str) -> Answer:
        """As `run`; none of the statements may fail."""
        last: Answer = (0, 0, (), ())
        for sql in statements:
            last = self.run(sql)
            assert last[0] == 0, f"{sql}: {last}"
        return last

    def close(self) -> None:
        for session in self.sessions.values():
            session.close()


def _normal(answer: Answer, engine: str) -> Answer:
    """The names of the engines are those that differ in SHOW CREATE TABLE and similar."""
    number, affected, rows, warnings = answer
    named = tuple(
        tuple(
            value.replace(f"temporary_{engine[:3].lower()}", "d").replace(
                f"ENGINE={engine}", "ENGINE"
            )
            if isinstance(value, str)
            else value
            for value in row
        )
        for row in rows
    )
    return number, affected, named, warnings


@pytest.fixture(autouse=True)
def firn() -> None:
    """Skips the tests for InnoDB, which is the reference."""
    if not IS_FIRN:
        pytest.skip("compares with InnoDB")


@pytest.fixture
def pair(server: Server) -> Any:
    made = Pair(server)
    yield made
    made.close()


def _directory(server: Server) -> Path:
    return server.data / "#firn" / "temporary"


def _bytes_on_disk(server: Server) -> int:
    total = 0
    for root, _, names in os.walk(_directory(server)):
        for name in names:
            try:
                total += (Path(root) / name).stat().st_blocks * 512
            except FileNotFoundError:
                continue
    return total


def _wait_for(done: Callable[[], bool], seconds: float = 60.0) -> bool:
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline:
        if done():
            return True
        time.sleep(0.1)
    return done()


SCRIPTS: dict[str, list[str]] = {
    "definitions": [
        "CREATE TEMPORARY TABLE t (id INT PRIMARY KEY AUTO_INCREMENT, a INT, b VARCHAR(20), KEY (a))",
        "SHOW CREATE TABLE t",
        "INSERT INTO t (a, b) VALUES (1, 'x'), (2, 'y'), (3, NULL)",
        "SELECT * FROM t ORDER BY id",
        "ALTER TABLE t ADD COLUMN c INT DEFAULT 7, ADD UNIQUE KEY (b)",
        "SHOW CREATE TABLE t",
        "INSERT INTO t (a, b) VALUES (9, 'x')",
        "SELECT * FROM t ORDER BY id",
        "ALTER TABLE t DROP KEY b, ADD KEY ab (a, b), ALGORITHM=COPY",
        "ALTER TABLE t ADD KEY c (c), ALGORITHM=INPLACE",
        "ALTER TABLE t ADD KEY c (c)",
        "CREATE INDEX i ON t (b)",
        "DROP INDEX i ON t",
        "ALTER TABLE t MODIFY a BIGINT, DROP PRIMARY KEY, ADD PRIMARY KEY (id, a)",
        "ALTER TABLE t ADD UNIQUE KEY u (c)",
        "SELECT * FROM t ORDER BY id",
        "ALTER TABLE t RENAME TO t2",
        "SELECT * FROM t",
        "RENAME TABLE t2 TO t3",
        "SELECT a, b FROM t3 WHERE a >= 2 ORDER BY a",
        "ALTER TABLE t3 AUTO_INCREMENT = 100",
        "INSERT INTO t3 (a, b) VALUES (50, 'auto')",
        "SELECT id FROM t3 WHERE a = 50",
        "TRUNCATE TABLE t3",
        "SELECT COUNT(*) FROM t3",
        "INSERT INTO t3 (a, b) VALUES (51, 'again')",
        "SELECT id FROM t3",
        "ALTER TABLE t3 ENGINE=MyISAM",
        "SELECT id FROM t3",
        "DROP TEMPORARY TABLE t3",
        "DROP TEMPORARY TABLE t3",
        "DROP TABLE IF EXISTS t3",
    ],
    "like and select": [
        "CREATE TABLE p (id INT PRIMARY KEY, v VARCHAR(50), UNIQUE KEY (v))",
        "INSERT INTO p VALUES (1, 'one'), (2, 'two')",
        "CREATE TEMPORARY TABLE l LIKE p",
        "SHOW CREATE TABLE l",
        "INSERT INTO l SELECT * FROM p",
        "INSERT INTO l VALUES (3, 'one')",
        "CREATE TEMPORARY TABLE s AS SELECT id + 10 AS id, v FROM p",
        "CREATE TEMPORARY TABLE s AS SELECT 1",
        "CREATE TEMPORARY TABLE IF NOT EXISTS s AS SELECT 1",
        "CREATE OR REPLACE TEMPORARY TABLE s (PRIMARY KEY (id)) SELECT id, v FROM p",
        "CREATE TEMPORARY TABLE dup (PRIMARY KEY (x)) SELECT 1 AS x UNION ALL SELECT 1",
        "SELECT * FROM dup",
        "CREATE TEMPORARY TABLE ig (PRIMARY KEY (x)) IGNORE SELECT 1 AS x UNION ALL SELECT 1",
        "SELECT * FROM ig",
        "SELECT * FROM p JOIN l USING (id) JOIN s USING (id) ORDER BY id",
        "SELECT * FROM s WHERE id IN (SELECT id FROM l) ORDER BY id",
        "CREATE TABLE from_temporary SELECT * FROM s",
        "CREATE TABLE like_temporary LIKE s",
        "SHOW CREATE TABLE like_temporary",
        "SELECT * FROM from_temporary ORDER BY id",
        "SHOW TABLES",
        "SELECT COUNT(*) FROM information_schema.tables WHERE table_schema = DATABASE()",
    ],
    "over a permanent table": [
        "CREATE TABLE t (id INT PRIMARY KEY)",
        "INSERT INTO t VALUES (1)",
        "CREATE TEMPORARY TABLE t (x VARCHAR(10), y INT, KEY (y))",
        "INSERT INTO t VALUES ('temp', 2)",
        "SELECT * FROM t",
        "ALTER TABLE t ADD z INT",
        "SELECT * FROM t",
        "TRUNCATE t",
        "SELECT * FROM t",
        "DROP TABLE t",
        "SELECT * FROM t",
        "DROP TABLE t",
        "DROP TABLE t",
    ],
    "rows": [
        "CREATE TEMPORARY TABLE t (id INT PRIMARY KEY, u INT UNIQUE, v INT, KEY (v))",
        "INSERT INTO t VALUES (1, 10, 1), (2, 20, 1), (3, 30, 2), (4, NULL, 2), (5, NULL, 3)",
        "INSERT INTO t VALUES (6, 60, 1), (7, 20, 1), (8, 80, 1)",
        "SELECT * FROM t ORDER BY id",
        "INSERT IGNORE INTO t VALUES (6, 60, 1), (7, 20, 1), (8, 80, 1)",
        "REPLACE INTO t VALUES (9, 20, 4), (1, 60, 5)",
        "INSERT INTO t VALUES (3, 1, 1), (10, 30, 1) ON DUPLICATE KEY UPDATE v = v + 100",
        "SELECT * FROM t ORDER BY id",
        "UPDATE t SET u = u + 1 WHERE u IS NOT NULL ORDER BY u DESC",
        "UPDATE t SET u = 80",
        "UPDATE t SET id = id + 1 WHERE id > 3 ORDER BY id DESC",
        "UPDATE t SET id = id + 1",
        "UPDATE t SET v = v + 1 WHERE v < 1000",
        "SELECT * FROM t WHERE v BETWEEN 2 AND 103 ORDER BY v, id",
        "SELECT * FROM t FORCE INDEX (v) WHERE v > 1 ORDER BY v DESC, id DESC",
        "DELETE FROM t WHERE v = 3",
        "DELETE FROM t ORDER BY id LIMIT 1",
        "SELECT * FROM t ORDER BY id FOR UPDATE",
        "SELECT * FROM t ORDER BY id LOCK IN SHARE MODE",
        "INSERT INTO t SELECT id + 100, u + 100, v FROM t",
        "SELECT COUNT(*), SUM(id), SUM(u), SUM(v) FROM t",
        "DELETE a FROM t a JOIN (SELECT 105 AS id) b USING (id)",
        "CHECK TABLE t",
        "ANALYZE TABLE t",
        "CHECKSUM TABLE t",
        "SELECT * FROM t ORDER BY id",
        "HANDLER t OPEN",
        "HANDLER t READ FIRST",
        "HANDLER t READ NEXT",
        "HANDLER t CLOSE",
        "LOCK TABLES t WRITE",
        "DELETE FROM t",
        "UNLOCK TABLES",
    ],
    "no primary key": [
        "CREATE TEMPORARY TABLE t (a INT, b INT, KEY (a))",
        "INSERT INTO t VALUES (1, 1), (1, 1), (2, 2), (NULL, 3)",
        "UPDATE t SET b = b + 1 WHERE a = 1",
        "DELETE FROM t WHERE a = 1 LIMIT 1",
        "ALTER TABLE t ADD id INT AUTO_INCREMENT PRIMARY KEY FIRST",
        "SELECT a, b FROM t ORDER BY a, b",
    ],
    "transactions": [
        "CREATE TEMPORARY TABLE t (id INT PRIMARY KEY, v INT, UNIQUE KEY (v)) ",
        "BEGIN",
        "INSERT INTO t VALUES (1, 1), (2, 2)",
        "SELECT * FROM t ORDER BY id",
        "ROLLBACK",
        "SELECT * FROM t ORDER BY id",
        "START TRANSACTION WITH CONSISTENT SNAPSHOT",
        "INSERT INTO t VALUES (1, 1), (2, 2)",
        "SAVEPOINT a",
        "UPDATE t SET v = v + 10",
        "SAVEPOINT b",
        "INSERT INTO t VALUES (3, 3), (4, 11)",
        "SELECT * FROM t ORDER BY id",
        "DELETE FROM t WHERE id = 1",
        "ROLLBACK TO b",
        "SELECT * FROM t ORDER BY id",
        "ROLLBACK TO a",
        "SELECT * FROM t ORDER BY id",
        "RELEASE SAVEPOINT a",
        "ROLLBACK TO b",
        "COMMIT",
        "SELECT * FROM t ORDER BY id",
        "SET autocommit = 0",
        "INSERT INTO t VALUES (5, 5)",
        "CREATE TEMPORARY TABLE u (x INT)",
        "INSERT INTO u VALUES (1)",
        "ROLLBACK",
        "SELECT * FROM t ORDER BY id",
        "SELECT * FROM u",
        "SET autocommit = 1",
    ],
    "savepoint before the first use": [
        "CREATE TABLE p (id INT PRIMARY KEY)",
        "CREATE TEMPORARY TABLE t (id INT PRIMARY KEY)",
        "BEGIN",
        "INSERT INTO p VALUES (1)",
        "SAVEPOINT a",
        "INSERT INTO t VALUES (1)",
        "INSERT INTO p VALUES (2)",
        "ROLLBACK TO a",
        "SELECT * FROM t",
        "SELECT * FROM p",
        "INSERT INTO t VALUES (2)",
        "COMMIT",
        "SELECT * FROM t",
        "SELECT * FROM p",
    ],
    "both kinds in one transaction": [
        "CREATE TABLE p (id INT PRIMARY KEY, v INT)",
        "CREATE TEMPORARY TABLE t (id INT PRIMARY KEY, v INT)",
        "BEGIN",
        "INSERT INTO p VALUES (1, 1)",
        "INSERT INTO t VALUES (1, 1)",
        "COMMIT",
        "BEGIN",
        "INSERT INTO p VALUES (2, 2)",
        "INSERT INTO t VALUES (2, 2)",
        "UPDATE p JOIN t USING (id) SET p.v = 9, t.v = 8",
        "SELECT * FROM p JOIN t USING (id)",
        "ROLLBACK",
        "SELECT * FROM p JOIN t USING (id)",
        "INSERT INTO p SELECT id + 1, v FROM t",
        "INSERT INTO t SELECT id + 5, v FROM p",
        "INSERT INTO t SELECT id, v FROM p",
        "SELECT * FROM t ORDER BY id",
        "SELECT * FROM p ORDER BY id",
    ],
    "definitions in a transaction": [
        "CREATE TABLE p (id INT PRIMARY KEY)",
        "CREATE TEMPORARY TABLE t (id INT PRIMARY KEY)",
        "BEGIN",
        "INSERT INTO p VALUES (1)",
        "SELECT * FROM t",
        "INSERT INTO t VALUES (1)",
        "TRUNCATE TABLE t",
        "SELECT * FROM t",
        "INSERT INTO t VALUES (2)",
        "CREATE TEMPORARY TABLE u (id INT PRIMARY KEY) SELECT * FROM t",
        "SELECT * FROM u",
        "CREATE TEMPORARY TABLE w (id INT PRIMARY KEY)",
        "INSERT INTO w VALUES (1)",
        "DROP TEMPORARY TABLE w",
        "CREATE TEMPORARY TABLE w (id INT PRIMARY KEY)",
        "INSERT INTO w VALUES (2)",
        "SELECT * FROM w",
        "ROLLBACK",
        "SELECT * FROM p",
        "SELECT * FROM t",
        "SELECT * FROM u",
        "SELECT * FROM w",
        "BEGIN",
        "INSERT INTO p VALUES (7)",
        "INSERT INTO t VALUES (7)",
        "ALTER TABLE t ADD v INT DEFAULT 3",
        "ROLLBACK",
        "SELECT * FROM t",
        "SELECT * FROM p",
        "BEGIN",
        "INSERT INTO t VALUES (8, 8)",
        "DROP TEMPORARY TABLE t",
        "INSERT INTO w VALUES (3)",
        "COMMIT",
        "SELECT * FROM w",
    ],
    "xa": [
        "CREATE TABLE p (id INT PRIMARY KEY)",
        "CREATE TEMPORARY TABLE t (id INT PRIMARY KEY)",
        "XA START '@engine'",
        "INSERT INTO p VALUES (1)",
        "INSERT INTO t VALUES (1)",
        "XA END '@engine'",
        "XA PREPARE '@engine'",
        "XA COMMIT '@engine'",
        "SELECT * FROM t",
        "SELECT * FROM p",
        "XA START '@engine'",
        "INSERT INTO p VALUES (2)",
        "INSERT INTO t VALUES (2)",
        "XA END '@engine'",
        "XA PREPARE '@engine'",
        "XA ROLLBACK '@engine'",
        "SELECT * FROM t",
        "SELECT * FROM p",
        "XA START '@engine'",
        "INSERT INTO t VALUES (3)",
        "XA END '@engine'",
        "XA PREPARE '@engine'",
        "XA ROLLBACK '@engine'",
        "SELECT * FROM t",
        "XA START '@engine'",
        "INSERT INTO t VALUES (4)",
        "XA END '@engine'",
        "XA COMMIT '@engine' ONE PHASE",
        "SELECT * FROM t",
        "XA START '@engine'",
        "INSERT INTO t VALUES (5)",
        "XA END '@engine'",
        "XA PREPARE '@engine'",
        "XA COMMIT '@engine'",
        "SELECT * FROM t",
        "XA START '@engine'",
        "INSERT INTO t VALUES (6)",
        "XA END '@engine'",
        "XA ROLLBACK '@engine'",
        "SELECT * FROM t",
        "XA RECOVER",
    ],
    "read only": [
        "CREATE TABLE p (id INT PRIMARY KEY)",
        "CREATE TEMPORARY TABLE t (id INT PRIMARY KEY)",
        "START TRANSACTION READ ONLY",
        "INSERT INTO t VALUES (1)",
        "INSERT INTO p VALUES (1)",
        "UPDATE t SET id = 2",
        "CREATE TEMPORARY TABLE u (id INT)",
        "DROP TEMPORARY TABLE t",
        "COMMIT",
        "SELECT * FROM t",
        "SELECT * FROM u",
        "SET SESSION TRANSACTION READ ONLY",
        "INSERT INTO t VALUES (9)",
        "DELETE FROM t WHERE id = 2",
        "SELECT * FROM t",
        "SET SESSION TRANSACTION READ WRITE",
    ],
    "columns and indexes": [
        "SET NAMES utf8mb4",
        "CREATE TEMPORARY TABLE t (id INT PRIMARY KEY, b LONGBLOB, t TEXT, d DECIMAL(20, 5),"
        " ts DATETIME(6), e ENUM('a', 'b'), j JSON, f DOUBLE, s SET('x', 'y'), bt BIT(12), y YEAR,"
        " c VARCHAR(40) COLLATE utf8mb4_unicode_ci, v INT AS (id * 2) VIRTUAL,"
        " st INT AS (id * 3) STORED, KEY (b(20)), UNIQUE KEY (c), KEY (v), KEY (d DESC, e),"
        " CHECK (f < 1000))",
        "SHOW CREATE TABLE t",
        "INSERT INTO t (id, b, t, d, ts, e, j, f, s, bt, y, c) VALUES"
        " (1, REPEAT('x', 100000), 'text', 1.5, '2020-01-01 10:00:00.5', 'a', '{\"a\": 1}', 0.5,"
        " 'x,y', 5, 2001, 'Straße'),"
        " (2, REPEAT('y', 3), NULL, -1.5, NULL, 'b', NULL, 1e10, '', NULL, NULL, NULL)",
        "INSERT INTO t (id, b, t, d, ts, e, j, f, s, bt, y, c) VALUES"
        " (1, REPEAT('x', 100000), 'text', 1.5, '2020-01-01 10:00:00.5', 'a', '{\"a\": 1}', 0.5,"
        " 'x,y', 5, 2001, 'Straße'),"
        " (2, REPEAT('y', 3), NULL, -1.5, NULL, 'b', NULL, 1, '', NULL, NULL, NULL)",
        "INSERT INTO t (id, c) VALUES (3, 'STRASSE')",
        "SELECT id, LENGTH(b), MD5(b), t, d, ts, e, j, f, s, HEX(bt), y, c, v, st FROM t ORDER BY id",
        "SELECT id FROM t WHERE v = 4",
        "SELECT id FROM t WHERE b LIKE 'xxx%'",
        "UPDATE t SET b = REPEAT('z', 200000), d = d + 1 WHERE id = 2",
        "UPDATE t SET f = 2000 WHERE id = 2",
        "SELECT id, LENGTH(b), MD5(b), v, st FROM t ORDER BY d DESC",
        "BEGIN",
        "UPDATE t SET b = CONCAT(b, '!')",
        "SELECT id, LENGTH(b), MD5(b) FROM t ORDER BY id",
        "ROLLBACK",
        "SELECT id, LENGTH(b), MD5(b) FROM t ORDER BY id",
        "ALTER TABLE t MODIFY t MEDIUMTEXT, ADD KEY (st)",
        "SELECT id, LENGTH(b), MD5(b), v, st FROM t WHERE st > 2 ORDER BY id",
        "DELETE FROM t WHERE id = 1",
        "SELECT COUNT(*) FROM t",
    ],
    "refused by the server": [
        "CREATE TEMPORARY TABLE t (id INT) PARTITION BY HASH (id) PARTITIONS 2",
        "CREATE TEMPORARY TABLE t (id INT PRIMARY KEY)",
        "CREATE TRIGGER g BEFORE INSERT ON t FOR EACH ROW SET NEW.id = 1",
        "CREATE VIEW v AS SELECT * FROM t",
        "ALTER TABLE t ADD KEY (id), ALGORITHM=INSTANT",
        "SELECT * FROM t a JOIN t b ON a.id = b.id",
        "FLUSH TABLES",
        "INSERT INTO t VALUES (1)",
        "FLUSH TABLES t",
        "SELECT * FROM t",
    ],
}


@pytest.mark.parametrize("script", SCRIPTS)
def test_scripts_answer_as_innodb(pair: Pair, script: str) -> None:
    pair.run(*SCRIPTS[script])


@pytest.mark.parametrize(
    "level", ["READ UNCOMMITTED", "READ COMMITTED", "REPEATABLE READ", "SERIALIZABLE"]
)
def test_isolation_levels(pair: Pair, level: str) -> None:
    pair.ok(f"SET SESSION TRANSACTION ISOLATION LEVEL {level}")
    for script in ("transactions", "rows", "definitions in a transaction"):
        pair.run(*SCRIPTS[script])
        pair.run("DROP TEMPORARY TABLE IF EXISTS t, u, w", "DROP TABLE IF EXISTS p")


ROUTINES = [
    "CREATE TABLE p (id INT PRIMARY KEY)",
    "INSERT INTO p VALUES (1), (2), (3)",
    """CREATE FUNCTION f(n INT) RETURNS INT
    BEGIN
      CREATE TEMPORARY TABLE IF NOT EXISTS inner_t (id INT PRIMARY KEY);
      INSERT INTO inner_t VALUES (n);
      RETURN (SELECT COUNT(*) FROM inner_t);
    END""",
    "CREATE TEMPORARY TABLE o (id INT PRIMARY KEY)",
    "INSERT INTO o VALUES (1), (2), (3), (4)",
    "SELECT id, f(id) FROM o ORDER BY id",
    "SELECT * FROM inner_t ORDER BY id",
    "SELECT id, f(id) FROM p ORDER BY id",
    "INSERT INTO o SELECT 10 + f(10 + id) FROM p",
    "SELECT * FROM o ORDER BY id",
    """CREATE PROCEDURE q()
    BEGIN
      DECLARE i INT DEFAULT 0;
      DECLARE EXIT HANDLER FOR 1062 SELECT 'duplicate' AS e, COUNT(*) FROM loop_t;
      WHILE i < 20 DO
        DROP TEMPORARY TABLE IF EXISTS loop_t;
        CREATE TEMPORARY TABLE loop_t (id INT PRIMARY KEY, v INT, KEY (v));
        INSERT INTO loop_t SELECT id, id * i FROM p;
        SET i = i + 1;
      END WHILE;
      INSERT INTO loop_t VALUES (9, 9), (1, 1);
    END""",
    "CALL q()",
    "SELECT * FROM loop_t ORDER BY id",
    "CREATE TRIGGER g AFTER INSERT ON p FOR EACH ROW INSERT INTO o VALUES (NEW.id + 1000)",
    "INSERT INTO p VALUES (10), (11)",
    "INSERT INTO p VALUES (12), (10)",
    "SELECT * FROM o ORDER BY id",
    "SELECT * FROM p ORDER BY id",
]


def test_functions_procedures_and_triggers(pair: Pair) -> None:
    pair.run(*ROUTINES)


def test_errors_in_the_middle_of_a_statement(pair: Pair) -> None:
    """A failed statement leaves nothing, in autocommit mode and in a transaction."""
    pair.ok(
        "CREATE TEMPORARY TABLE t (id INT PRIMARY KEY, u INT, v INT, UNIQUE KEY (u), KEY (v))",
        "INSERT INTO t SELECT seq, seq, seq % 7 FROM seq_1_to_1000",
    )
    statements = [
        "INSERT INTO t SELECT seq, seq, 1 FROM seq_1500_to_900",
        "INSERT INTO t SELECT seq + 2000, seq % 50 + 3000, 1 FROM seq_1_to_100",
        "UPDATE t SET u = LEAST(u + 1, 900)",
        "UPDATE t SET id = 5000 - id % 3",
        "REPLACE INTO t SELECT seq, seq, (SELECT v FROM t AS x WHERE x.id > seq - 2) FROM seq_1_to_9",
        "DELETE FROM t WHERE id < 10 AND id = (SELECT y.id FROM t AS y)",
    ]
    total = "SELECT COUNT(*), SUM(id), SUM(u), SUM(v), MAX(id) FROM t"
    for begin in ("SET @a = 1", "BEGIN"):
        pair.ok(begin)
        for sql in statements:
            pair.run(sql, total, "SELECT COUNT(*) FROM t FORCE INDEX (v) WHERE v = 3")
    pair.ok("COMMIT", total, "CHECK TABLE t EXTENDED")


def test_duplicates_after_many_inserts_of_a_transaction(pair: Pair) -> None:
    """A transaction that fills a table stops to look for committed rows if there are none."""
    pair.ok("CREATE TEMPORARY TABLE t (id INT PRIMARY KEY, v INT, UNIQUE (v))")
    fill = "INSERT INTO t SELECT seq, -seq FROM mysql.seq_{}_to_{}"
    duplicates = ("INSERT INTO t VALUES ({0}, 1)", "INSERT INTO t VALUES (9999, -{0})")

    def is_taken(key: int) -> None:
        for sql in duplicates:
            assert pair.run(sql.format(key))[0] == 1062
        pair.ok(f"INSERT IGNORE INTO t VALUES ({key}, 1)")

    pair.ok("BEGIN", fill.format(1, 50))
    is_taken(7)
    pair.ok("DELETE FROM t WHERE id = 8", "INSERT INTO t VALUES (8, -8)", "COMMIT")
    is_taken(8)
    # The rows of the first transaction are committed now.
    pair.ok("BEGIN", fill.format(101, 150))
    is_taken(7)
    is_taken(150)
    pair.ok("SAVEPOINT s", fill.format(201, 250), "ROLLBACK TO s", fill.format(240, 260))
    is_taken(245)
    is_taken(50)
    # A table emptied in a transaction is another one to the engine.
    pair.ok("TRUNCATE TABLE t", "BEGIN", fill.format(1, 50))
    is_taken(50)
    pair.ok("ROLLBACK", fill.format(30, 60))
    is_taken(30)
    # Two tables in turn.
    pair.ok("CREATE TEMPORARY TABLE u (id INT PRIMARY KEY)", "INSERT INTO u VALUES (1000)", "BEGIN")
    for at in range(40):
        pair.ok(f"INSERT INTO t VALUES ({1000 + at}, {5000 + at})", f"INSERT INTO u VALUES ({at})")
    pair.ok("INSERT INTO u SELECT seq FROM mysql.seq_100_to_200")
    assert pair.run("INSERT INTO u VALUES (1000)")[0] == 1062
    is_taken(45)
    pair.ok("COMMIT", "SELECT * FROM t ORDER BY id", "CHECK TABLE t, u EXTENDED")


def test_nobody_else_sees_a_temporary_table(server: Server) -> None:
    database = "temporary_unseen"
    server.query(f"DROP DATABASE IF EXISTS {database}")
    server.query(f"CREATE DATABASE {database}")
    session = server.connect(database)
    other = server.connect(database)
    create = f"CREATE TEMPORARY TABLE secret (id INT PRIMARY KEY, v INT) ENGINE={ENGINE}"
    assert _answer(session, create)[0] == 0
    assert _answer(session, "INSERT INTO secret VALUES (1, 1)")[0] == 0
    assert _answer(other, "SELECT * FROM secret")[0] == 1146
    assert _answer(other, create)[0] == 0
    assert _answer(other, "SELECT * FROM secret")[2] == ()
    if IS_FIRN:
        for view in ("FIRN_TABLES", "FIRN_LOCKS"):
            rows = _answer(other, f"SELECT * FROM information_schema.{view}")[2]
            assert not any("secret" in str(row) or "#sql" in str(row) for row in rows), rows
    session.close()
    assert _answer(other, "INSERT INTO secret VALUES (2, 2)")[0] == 0
    assert _answer(other, "SELECT * FROM secret")[2] == ((2, 2),)
    other.close()


def test_a_large_table_spills(own_server: Any) -> None:
    """A table of many times the memory, in one transaction and in several."""
    server = own_server("--firn-memory-limit=16M", "--firn-txn-memory-limit=2M")
    server.query("CREATE DATABASE d")
    session = server.connect("d")
    rows = 80_000

    def run(sql: str) -> Answer:
        answer = _answer(session, sql)
        assert answer[0] == 0, f"{sql}: {answer}"
        return answer

    run(
        "CREATE TEMPORARY TABLE t (id INT PRIMARY KEY, v INT, w VARCHAR(400), b BLOB, KEY (v), "
        f"UNIQUE KEY (v, w)) ENGINE={ENGINE}"
    )
    fill = (
        "SELECT seq, seq % 1000, CONCAT(MD5(seq), MD5(seq + 1), MD5(seq + 2), MD5(-seq)), MD5(seq)"
    )
    total = "SELECT COUNT(*), SUM(id), SUM(v), SUM(LENGTH(w)), MIN(w), MAX(w) FROM t"
    run(f"INSERT INTO t {fill} FROM seq_1_to_{rows}")
    before = run(total)
    assert before[2][0][0] == rows
    run("BEGIN")
    run("UPDATE t SET v = v + 1, w = REVERSE(w)")
    assert run(total)[2] != before[2]
    run("SAVEPOINT a")
    run("DELETE FROM t WHERE id % 2 = 0")
    run("ROLLBACK TO a")
    assert run("SELECT COUNT(*) FROM t")[2][0][0] == rows
    run("ROLLBACK")
    assert run(total)[2] == before[2]
    run("INSERT INTO t SELECT id + 1000000, v + 2000, w, REPEAT('b', 20000) FROM t LIMIT 1000")
    assert run("SELECT COUNT(*), SUM(LENGTH(b)) FROM t WHERE id > 1000000")[2] == (
        (1000, 20_000_000),
    )
    run("ALTER TABLE t ADD KEY (w), DROP KEY v")
    assert run("SELECT COUNT(*) FROM t FORCE INDEX (w) WHERE w >= ''")[2] == ((rows + 1000,),)
    assert run("CHECK TABLE t EXTENDED")[2][-1][3] == "OK"
    if IS_FIRN:

        def memory() -> int:
            return int(run("SHOW GLOBAL STATUS LIKE 'Firn_memory_bytes'")[2][0][1])

        assert _wait_for(lambda: _bytes_on_disk(server) > 4 << 20), _bytes_on_disk(server)
        # The largest write set, which may exceed the limit, is gone.
        assert _wait_for(lambda: memory() <= 17 << 20), memory()
        run("DROP TEMPORARY TABLE t")
        assert _wait_for(lambda: _bytes_on_disk(server) < 2 << 20), _bytes_on_disk(server)
    session.close()


def test_the_end_of_a_session_frees_its_space(own_server: Any) -> None:
    server = own_server()
    server.query("CREATE DATABASE d")
    for ending in ("kill", "close", "connection lost"):
        session = server.connect("d")
        assert (
            _answer(
                session, f"CREATE TEMPORARY TABLE t (id INT PRIMARY KEY, w TEXT) ENGINE={ENGINE}"
            )[0]
            == 0
        )
        fill = "INSERT INTO t SELECT seq, CONCAT(MD5(seq), MD5(RAND())) FROM seq_1_to_{}"
        assert _answer(session, fill.format(300_000))[0] == 0
        assert _answer(session, "BEGIN")[0] == 0
        assert _answer(session, "UPDATE t SET w = 'x' WHERE id < 1000")[0] == 0
        if IS_FIRN:
            assert _wait_for(lambda: _bytes_on_disk(server) > 4 << 20)
        if ending == "kill":
            server.query(f"KILL {session.thread_id()}")
        elif ending == "close":
            session.close()
        else:
            session._sock.shutdown(socket.SHUT_RDWR)
        if IS_FIRN:
            assert _wait_for(lambda: _bytes_on_disk(server) < 2 << 20), (
                ending,
                _bytes_on_disk(server),
            )


def test_a_crash_leaves_nothing(own_server: Any) -> None:
    server = own_server()
    server.query("CREATE DATABASE d")
    server.query(f"CREATE TABLE d.p (id INT PRIMARY KEY) ENGINE={ENGINE}")
    sessions = [server.connect("d") for _ in range(3)]
    for session in sessions:
        for sql in (
            f"CREATE TEMPORARY TABLE t (id INT PRIMARY KEY, w TEXT) ENGINE={ENGINE}",
            "INSERT INTO t SELECT seq, MD5(seq) FROM seq_1_to_200000",
            "BEGIN",
            "INSERT INTO t VALUES (0, 'uncommitted')",
        ):
            assert _answer(session, sql)[0] == 0, sql
    if IS_FIRN:
        assert _wait_for(lambda: _bytes_on_disk(server) > 0)
    server.crash_and_recover()
    if IS_FIRN:
        left = list(_directory(server).rglob("*"))
        assert not left, left
    leftovers = [name for name in os.listdir(server.directory) if name.startswith("#sql")]
    assert not leftovers, leftovers
    session = server.connect("d")
    assert _answer(session, "SELECT * FROM t")[0] == 1146
    assert _answer(session, f"CREATE TEMPORARY TABLE t (id INT) ENGINE={ENGINE}")[0] == 0
    assert _answer(session, "INSERT INTO t VALUES (1)")[0] == 0
    assert _answer(session, "SELECT * FROM t")[2] == ((1,),)
    server.restart()
    if IS_FIRN:
        left = list(_directory(server).rglob("*"))
        assert not left, left


def test_many_tables(pair: Pair) -> None:
    count = 300
    for number in range(count):
        pair.ok(
            f"CREATE TEMPORARY TABLE t{number} (id INT PRIMARY KEY, v INT, KEY (v))",
            f"INSERT INTO t{number} SELECT seq, {number} FROM seq_1_to_20",
        )
    pair.ok("BEGIN")
    for number in range(0, count, 7):
        pair.ok(f"UPDATE t{number} SET v = v + 1 WHERE id < 5")
    pair.ok("ROLLBACK")
    for number in range(count):
        pair.ok(f"SELECT COUNT(*), SUM(v) FROM t{number}")
    names = ", ".join(f"t{number}" for number in range(count))
    pair.ok(f"DROP TEMPORARY TABLE {names}")


def test_an_open_transaction_at_disconnect(server: Server) -> None:
    """Permanent changes are rolled back; a prepared transaction keeps only them."""
    name = "temporary_disconnect"
    answers = []
    for engine in ("InnoDB", ENGINE):
        server.query(f"DROP DATABASE IF EXISTS {name}")
        server.query(f"CREATE DATABASE {name}")
        session = server.connect(name)
        told: list[Any] = []
        for sql in (
            f"SET default_storage_engine = {engine}",
            "CREATE TABLE p (id INT PRIMARY KEY)",
            "CREATE TEMPORARY TABLE t (id INT PRIMARY KEY)",
            "BEGIN",
            "INSERT INTO p VALUES (1)",
            "INSERT INTO t VALUES (1)",
        ):
            assert _answer(session, sql)[0] == 0, sql
        session.close()
        told.append(_eventually(server, f"SELECT * FROM {name}.p", ()))
        for xid, with_permanent in (("a", True), ("b", False)):
            session = server.connect(name)
            for sql in (
                f"SET default_storage_engine = {engine}",
                "CREATE TEMPORARY TABLE t (id INT PRIMARY KEY)",
                f"XA START '{xid}'",
                f"INSERT INTO {'p' if with_permanent else 't'} VALUES (5)",
                "INSERT INTO t VALUES (6)",
                f"XA END '{xid}'",
                f"XA PREPARE '{xid}'",
            ):
                assert _answer(session, sql)[0] == 0, sql
            # The server detaches the transaction before it takes the session off its list.
            sessions = "SELECT COUNT(*) FROM information_schema.processlist"
            gone = f"{sessions} WHERE id = {session.thread_id()}"
            session.close()
            assert _eventually(server, gone, ((0,),)) == ((0,),)
            other = server.connect(name)
            told.append(_answer(other, "XA RECOVER")[2])
            told.append(_answer(other, f"XA COMMIT '{xid}'")[0])
            told.append(_answer(other, "SELECT * FROM p")[2])
            other.close()
        answers.append(told)
    assert answers[0] == answers[1]


def _eventually(server: Server, sql: str, wanted: tuple[Row, ...]) -> tuple[Row, ...]:
    found: tuple[Row, ...] = ()

    def look() -> bool:
        nonlocal found
        found = server.query(sql)
        return found == wanted

    _wait_for(look)
    return found


def test_the_binary_log_is_innodbs(own_server: Any) -> None:
    server = own_server("--log-bin=bin", "--server-id=1")
    server.query("CREATE DATABASE d")
    statements = [
        "CREATE TABLE p (id INT PRIMARY KEY)",
        "CREATE TEMPORARY TABLE t (id INT PRIMARY KEY, v INT)",
        "INSERT INTO t VALUES (1, 1)",
        "BEGIN",
        "INSERT INTO t VALUES (2, 2)",
        "COMMIT",
        "BEGIN",
        "INSERT INTO t VALUES (3, 3)",
        "ROLLBACK",
        "BEGIN",
        "INSERT INTO p VALUES (1)",
        "UPDATE t SET v = 5",
        "SAVEPOINT a",
        "INSERT INTO t VALUES (4, 4)",
        "ROLLBACK TO a",
        "COMMIT",
        "BEGIN",
        "INSERT INTO p VALUES (2)",
        "INSERT INTO t VALUES (9, 9)",
        "ROLLBACK",
        "INSERT INTO p SELECT id + 10 FROM t",
        "CREATE TEMPORARY TABLE u SELECT * FROM t",
        "ALTER TABLE t ADD w INT",
        "TRUNCATE t",
        "INSERT INTO t VALUES (1, 1, 1), (1, 1, 1)",
        # Not left to the end of the session, whose events come when the next one has begun.
        "DROP TEMPORARY TABLE t, u",
        "DROP TABLE p",
    ]
    for level in ("READ COMMITTED", "REPEATABLE READ"):
        for binlog_format in ("STATEMENT", "MIXED", "ROW"):
            logs = []
            for engine in ("InnoDB", ENGINE):
                session = server.connect("d")
                for sql in (
                    f"SET SESSION TRANSACTION ISOLATION LEVEL {level}",
                    f"SET binlog_format = {binlog_format}",
                    f"SET default_storage_engine = {engine}",
                ):
                    assert _answer(session, sql)[0] == 0, sql
                told: list[Any] = []
                for sql in statements:
                    file, position = _answer(session, "SHOW MASTER STATUS")[2][0][:2]
                    told.append((sql, _answer(session, sql)[0]))
                    events = _answer(session, f"SHOW BINLOG EVENTS IN '{file}' FROM {position}")[2]
                    told += [(row[2], _without_numbers(str(row[5]))) for row in events]
                session.close()
                logs.append(told)
            assert logs[0] == logs[1], (level, binlog_format)


def _without_numbers(text: str) -> str:
    """An event's text without GTIDs, ids of transactions and tables, and engine names."""
    if text.startswith(("BEGIN GTID", "GTID")):
        return text.split(" ", 1)[0]
    if "xid=" in text or "table_id" in text:
        return text.split("=")[0].split(":")[0]
    return text


def test_a_replica_hands_tables_over(own_server: Any) -> None:
    """With statements in the log, the replica keeps temporary tables from thread to thread."""
    port = free_port()
    primary = own_server(
        "--log-bin=bin",
        "--server-id=1",
        "--binlog-format=STATEMENT",
        "--skip-networking=0",
        "--bind-address=127.0.0.1",
        f"--port={port}",
        f"--default-storage-engine={ENGINE}",
    )
    replica = own_server("--server-id=2", f"--default-storage-engine={ENGINE}", "--log-bin=bin")
    primary.query("CREATE USER r@'127.0.0.1' IDENTIFIED BY 'r'")
    primary.query("GRANT REPLICATION SLAVE ON *.* TO r@'127.0.0.1'")
    control = replica.connect("mysql")

    def on_replica(sql: str) -> Answer:
        answer = _answer(control, sql)
        assert answer[0] == 0, f"{sql}: {answer}"
        return answer

    def caught_up() -> None:
        gtid = primary.query("SELECT @@gtid_binlog_pos")[0][0]
        waited = on_replica(f"SELECT MASTER_GTID_WAIT('{gtid}', 60)")[2][0][0]
        with control.cursor(pymysql.cursors.DictCursor) as cursor:
            cursor.execute("SHOW SLAVE STATUS")
            status = cursor.fetchone()
        assert waited == 0, (status["Last_SQL_Error"], status["Slave_SQL_Running_State"])
        assert status["Slave_SQL_Running"] == "Yes", status

    on_replica(
        f"CHANGE MASTER TO MASTER_HOST='127.0.0.1', MASTER_PORT={port}, MASTER_USER='r', "
        "MASTER_PASSWORD='r', MASTER_USE_GTID=slave_pos, MASTER_CONNECT_RETRY=1"
    )
    on_replica("START SLAVE")
    primary.query("CREATE DATABASE d")
    session = primary.connect("d")

    def on_primary(sql: str) -> None:
        answer = _answer(session, sql)
        assert answer[0] == 0, f"{sql}: {answer}"

    on_primary("CREATE TABLE p (id INT PRIMARY KEY, v INT)")
    on_primary("CREATE TEMPORARY TABLE t (id INT PRIMARY KEY, v INT, KEY (v))")
    on_primary("INSERT INTO t VALUES (1, 1), (2, 2)")
    caught_up()
    for round_number in range(3):
        on_replica("STOP SLAVE")
        on_replica("START SLAVE")
        on_primary(f"INSERT INTO t VALUES ({round_number + 10}, 7)")
        on_primary("BEGIN")
        on_primary("UPDATE t SET v = v + 1")
        on_primary(f"INSERT INTO p SELECT id + {round_number} * 100, v FROM t")
        on_primary("COMMIT")
        on_primary("ALTER TABLE t ADD KEY (id, v)")
        caught_up()
        wanted = primary.query("SELECT * FROM d.p ORDER BY id")
        assert replica.query("SELECT * FROM d.p ORDER BY id") == wanted
    on_replica("STOP SLAVE")
    on_primary("TRUNCATE t")
    on_primary("INSERT INTO t VALUES (5000, 1)")
    on_replica("START SLAVE")
    caught_up()
    opened = on_replica("SHOW STATUS LIKE 'Slave_open_temp_tables'")[2]
    assert opened[0][1] == "1", opened
    on_primary("INSERT INTO p SELECT * FROM t")
    session.close()
    assert _wait_for(
        lambda: on_replica("SHOW STATUS LIKE 'Slave_open_temp_tables'")[2][0][1] == "0"
    )
    caught_up()
    wanted = primary.query("SELECT * FROM d.p ORDER BY id")
    assert replica.query("SELECT * FROM d.p ORDER BY id") == wanted
    control.close()


def test_many_sessions_at_once(server: Server) -> None:
    """Sessions with tables of one name do not meet."""
    database = "temporary_many"
    server.query(f"DROP DATABASE IF EXISTS {database}")
    server.query(f"CREATE DATABASE {database}")
    sessions = [server.connect(database) for _ in range(20)]
    for number, session in enumerate(sessions):
        for sql in (
            f"CREATE TEMPORARY TABLE t (id INT PRIMARY KEY, v INT, KEY (v)) ENGINE={ENGINE}",
            "BEGIN",
            f"INSERT INTO t SELECT seq, {number} FROM seq_1_to_50",
        ):
            assert _answer(session, sql)[0] == 0
    for number, session in enumerate(sessions):
        assert _answer(session, "SELECT COUNT(*), MIN(v), MAX(v) FROM t")[2] == (
            (50, number, number),
        )
        assert _answer(session, "ROLLBACK" if number % 2 else "COMMIT")[0] == 0
    for number, session in enumerate(sessions):
        assert _answer(session, "SELECT COUNT(*) FROM t")[2] == ((0 if number % 2 else 50,),)
        session.close()


class Random:
    """Random statements on a few temporary tables and a permanent one."""

    COLUMNS = ("v", "w", "s")

    def __init__(self, seed: int) -> None:
        self.random = random.Random(seed)

    def _table(self) -> str:
        return self.random.choice(["t0", "t1", "t2", "p"])

    def _value(self) -> str:
        choice = self.random.random()
        return "NULL" if choice < 0.1 else str(self.random.randrange(-20, 60))

    def _where(self) -> str:
        low = self.random.randrange(0, 60)
        return self.random.choice(
            [
                f"id = {low}",
                f"id BETWEEN {low} AND {low + self.random.randrange(20)}",
                f"v = {low}",
                f"w > {low}",
                f"v < {low} AND w IS NOT NULL",
                f"s = 's{low}'",
            ]
        )

    def _create(self, table: str) -> str:
        keys = [
            "PRIMARY KEY (id)",
            "KEY (v)",
            "KEY (w, v)",
            "UNIQUE KEY (v, s)",
            "UNIQUE KEY (s)",
            "KEY (s(2))",
        ]
        chosen = self.random.sample(keys, self.random.randrange(1, 4))
        if "PRIMARY KEY (id)" not in chosen and self.random.random() < 0.7:
            chosen.append("PRIMARY KEY (id)")
        return (
            f"CREATE TEMPORARY TABLE {table} (id INT NOT NULL, v INT, w BIGINT, s VARCHAR(30), "
            f"b TEXT, {', '.join(chosen)})"
        )

    def _change(self, table: str) -> str:
        rows = ", ".join(
            f"({self.random.randrange(60)}, {self._value()}, {self._value()}, "
            f"'s{self.random.randrange(60)}', REPEAT('b', {self.random.choice([0, 5, 300, 9000])}))"
            for _ in range(self.random.randrange(1, 6))
        )
        order = "ORDER BY id, v, w, s, LENGTH(b)"
        column = self.random.choice(["v", "w"])
        return self.random.choice(
            [
                f"INSERT INTO {table} VALUES {rows}",
                f"INSERT INTO {table} VALUES {rows}",
                f"REPLACE INTO {table} VALUES {rows}",
                f"INSERT IGNORE INTO {table} VALUES {rows}",
                f"INSERT INTO {table} VALUES {rows} ON DUPLICATE KEY UPDATE w = {self._value()}",
                f"UPDATE {table} SET {column} = {column} + 1 WHERE {self._where()} {order}",
                f"UPDATE {table} SET s = CONCAT('s', id % 7) WHERE {self._where()} {order}",
                f"UPDATE {table} SET id = id + 1, b = 'c' WHERE {self._where()} {order} LIMIT 3",
                f"DELETE FROM {table} WHERE {self._where()} {order} LIMIT 5",
                f"INSERT IGNORE INTO {table} SELECT id + 1, v, w, s, b FROM {self._table()} {order}",
            ]
        )

    def statement(self) -> str:
        """The next statement."""
        table = self._table()
        choice = self.random.random()
        if choice < 0.5:
            return self._change(table)
        if choice < 0.62:
            return f"SELECT * FROM {table} WHERE {self._where()} ORDER BY 1, 2, 3, 4, 5"
        if choice < 0.75:
            return f"SELECT COUNT(*), SUM(id), SUM(v), SUM(w), SUM(LENGTH(b)) FROM {table}"
        if choice < 0.87:
            return self.random.choice(
                [
                    "BEGIN",
                    "BEGIN",
                    "BEGIN",
                    "COMMIT",
                    "ROLLBACK",
                    "SAVEPOINT a",
                    "SAVEPOINT b",
                    "ROLLBACK TO a",
                    "ROLLBACK TO b",
                    "RELEASE SAVEPOINT a",
                ]
            )
        if table == "p":
            return "SELECT * FROM p ORDER BY id"
        return self.random.choice(
            [
                f"TRUNCATE TABLE {table}",
                f"DROP TEMPORARY TABLE {table}",
                self._create(table),
                self._create(table),
                self._create(table),
                self._create(table),
                f"ALTER TABLE {table} ADD KEY k{self.random.randrange(3)} (w)",
                f"ALTER TABLE {table} DROP KEY k{self.random.randrange(3)}",
                f"ALTER TABLE {table} ADD UNIQUE KEY uq (w, s)",
                f"ALTER TABLE {table} DROP PRIMARY KEY",
                f"ALTER TABLE {table} FORCE",
            ]
        )


def test_random_statements_answer_as_ordinary_tables_of_innodb(pair: Pair, seed: int) -> None:
    """InnoDB's temporary tables are no reference here.

    They lose rows when a statement is rolled back that has moved primary keys. Ordinary tables
    commit at definitions, so both sides do that here.
    """
    pair.ordinary_reference = True
    pair.ok(
        "SET alter_algorithm = 'COPY'",
        "CREATE TABLE p (id INT PRIMARY KEY, v INT, w BIGINT, s VARCHAR(30), b TEXT)",
    )
    generator = Random(seed)
    seconds = float(os.environ.get("FIRN_TEST_SECONDS", "0"))
    deadline = time.monotonic() + seconds
    ran = 0
    while time.monotonic() < deadline if seconds else ran < STATEMENTS:
        sql = generator.statement()
        if sql.startswith(("CREATE", "DROP", "ALTER", "TRUNCATE")):
            pair.run("COMMIT")
        pair.run(sql)
        ran += 1
    print(f"{ran} statements, seed {seed}")
    pair.run("COMMIT")
    for table in ("t0", "t1", "t2", "p"):
        pair.run(
            f"SELECT * FROM {table} ORDER BY 1, 2, 3, 4, 5",
            f"CHECK TABLE {table} EXTENDED",
        )
