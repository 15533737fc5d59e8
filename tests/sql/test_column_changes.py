"""Columns added, dropped, moved and widened without a copy, beside InnoDB.

Rows keep the version of the definition that they were written with, so each test reads and changes
rows of several versions. FIRN_TEST_COLUMN_ROUNDS is the number of random tables (default 6).
"""

# ruff: noqa: E501 (a statement a line)

from __future__ import annotations

import os
import subprocess
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from random import Random

import pytest
from differential.pair import Outcome, Pair, execute
from foreign_key_pair import KeyPair
from scenario import lines, same_as_innodb
from server import IS_FIRN, REPOSITORY, Server

TOOL = Path(os.environ.get("FIRN_TEST_TOOL", REPOSITORY / "build" / "bin" / "firn"))

ROUNDS = int(os.environ.get("FIRN_TEST_COLUMN_ROUNDS", "6"))
SETTINGS = ["SET timestamp = 1700000000, time_zone = '+00:00'"]

pytestmark = pytest.mark.skipif(not IS_FIRN, reason="compares InnoDB with another engine")


def test_columns_of_all_types_have_their_defaults(server: Server) -> None:
    """Rows that were there before a column have its default, NULL or the type's implicit value."""
    same_as_innodb(
        server,
        """
        SET sql_mode = '', timestamp = 1700000000
        CREATE TABLE {db}.t (id INT PRIMARY KEY, v VARCHAR(10))
        INSERT INTO {db}.t VALUES (1, 'a'), (2, NULL), (3, 'ccc')
        ALTER TABLE {db}.t ADD i1 INT NOT NULL DEFAULT 7 FIRST, ADD i2 BIGINT UNSIGNED DEFAULT 18446744073709551615, ADD i3 TINYINT NOT NULL AFTER id
        ALTER TABLE {db}.t ADD d1 DECIMAL(12,3) NOT NULL DEFAULT -1.5, ADD d2 DOUBLE DEFAULT 1.25, ADD d3 FLOAT
        ALTER TABLE {db}.t ADD t1 DATETIME(6) NOT NULL DEFAULT CURRENT_TIMESTAMP(6), ADD t2 TIMESTAMP NOT NULL DEFAULT CURRENT_TIMESTAMP ON UPDATE CURRENT_TIMESTAMP, ADD t3 DATE NOT NULL, ADD t4 TIME(3) DEFAULT '-11:22:33.444', ADD t5 YEAR NOT NULL DEFAULT 1999
        ALTER TABLE {db}.t ADD c1 CHAR(9) NOT NULL DEFAULT 'x  ', ADD c2 VARCHAR(300) CHARACTER SET utf8mb4 NOT NULL DEFAULT 'äöü€', ADD c3 BINARY(5) NOT NULL DEFAULT 'ab', ADD c4 VARBINARY(9) DEFAULT X'00ff', ADD c5 CHAR(4) CHARACTER SET utf16 DEFAULT 'ü'
        ALTER TABLE {db}.t ADD b1 TEXT NOT NULL DEFAULT 'long', ADD b2 BLOB, ADD b3 TEXT NOT NULL, ADD b4 LONGTEXT DEFAULT REPEAT('x', 400), ADD b5 JSON DEFAULT '{"a": 1}'
        ALTER TABLE {db}.t ADD e1 ENUM('q','r') NOT NULL, ADD e2 SET('m','n') DEFAULT 'm,n', ADD e3 BIT(11) DEFAULT b'10110011001', ADD e4 UUID DEFAULT '123e4567-e89b-12d3-a456-426614174000', ADD e5 INET6 DEFAULT '::1', ADD e6 BOOLEAN NOT NULL DEFAULT TRUE
        ALTER TABLE {db}.t ADD u1 VARCHAR(80) DEFAULT CURRENT_USER(), ADD n1 INT DEFAULT (1 + 2), ADD n2 INT DEFAULT (i1 + 2)
        ALTER TABLE {db}.t ADD g1 INT AS (i1 * 2) VIRTUAL, ADD g2 INT AS (i1 * 3) STORED, ADD p1 POINT, ADD k1 INT INVISIBLE DEFAULT 3
        INSERT INTO {db}.t (id) VALUES (4)
        INSERT INTO {db}.t (id, v, i1, c2, b1) VALUES (5, 'five', 55, 'neu', 'anders')
        SELECT * FROM {db}.t ORDER BY id
        SELECT id, k1, HEX(b2), LENGTH(b4) FROM {db}.t ORDER BY id
        UPDATE {db}.t SET i3 = id WHERE id < 3
        UPDATE {db}.t SET b1 = CONCAT(b1, '+'), c2 = NULL WHERE id = 2
        SELECT * FROM {db}.t ORDER BY id
        SELECT id FROM {db}.t WHERE i1 = 7 AND c1 = 'x' AND t5 = 1999 ORDER BY id DESC
        ALTER TABLE {db}.t DROP c1, DROP b4, DROP i2, DROP t1, DROP n2
        SELECT * FROM {db}.t ORDER BY id
        ALTER TABLE {db}.t ADD c1 INT DEFAULT 5 AFTER id, ADD b4 VARCHAR(20) NOT NULL DEFAULT 'again'
        SELECT * FROM {db}.t ORDER BY id
        DELETE FROM {db}.t WHERE id = 3
        CHECK TABLE {db}.t EXTENDED
        SELECT COUNT(*), MIN(b4), MAX(c1), SUM(i1) FROM {db}.t
        """,
    )


def test_everything_of_a_statement_reads_rows_of_all_versions(server: Server) -> None:
    """Indexes, joins, triggers, views, prepared statements, HANDLER, generated columns."""
    same_as_innodb(
        server,
        """
        CREATE TABLE {db}.t (id INT PRIMARY KEY, a INT, b VARCHAR(20), c TEXT, KEY (a), KEY (b(3)))
        INSERT INTO {db}.t SELECT seq, seq % 7, CONCAT('b', seq % 5), REPEAT('c', seq * 30) FROM seq_1_to_60
        PREPARE p FROM 'SELECT * FROM {db}.t WHERE id = ?'
        EXECUTE p USING 5
        HANDLER {db}.t OPEN AS h
        HANDLER h READ `PRIMARY` FIRST
        ALTER TABLE {db}.t ADD n INT NOT NULL DEFAULT 9 FIRST, MODIFY c TEXT AFTER id
        EXECUTE p USING 5
        INSERT INTO {db}.t (id, a, b, c) SELECT seq, seq % 7, CONCAT('n', seq % 5), 'new' FROM seq_61_to_80
        ALTER TABLE {db}.t ADD KEY kn (n, a)
        ALTER TABLE {db}.t MODIFY b VARCHAR(300), ADD m VARCHAR(10) DEFAULT 'mm'
        EXECUTE p USING 70
        SELECT id, a FROM {db}.t FORCE INDEX (a) WHERE a = 3 ORDER BY id
        SELECT * FROM {db}.t FORCE INDEX (a) WHERE a IN (2, 4) AND n = 9 ORDER BY id
        SELECT n, a, id FROM {db}.t FORCE INDEX (kn) WHERE n = 9 AND a < 2 ORDER BY id
        SELECT x.id, y.b, y.m FROM {db}.t x JOIN {db}.t y ON x.a = y.id ORDER BY 1
        SELECT b, m, COUNT(*), SUM(n), MAX(c) FROM {db}.t GROUP BY b, m ORDER BY b
        CREATE TRIGGER {db}.tr BEFORE UPDATE ON {db}.t FOR EACH ROW SET NEW.m = CONCAT(OLD.m, '!', OLD.n)
        UPDATE {db}.t SET a = a + 1 WHERE id % 9 = 1 ORDER BY id
        SELECT * FROM {db}.t WHERE id % 9 = 1 ORDER BY id
        CREATE VIEW {db}.vw AS SELECT id, n, m FROM {db}.t WHERE n = 9
        SELECT * FROM {db}.vw WHERE id BETWEEN 55 AND 65 ORDER BY id
        ALTER TABLE {db}.t ADD g INT AS (n * a) VIRTUAL AFTER n, ADD x INT DEFAULT 4
        SELECT id, g, x FROM {db}.t WHERE id > 58 ORDER BY id
        UPDATE {db}.t SET n = n + id WHERE id BETWEEN 58 AND 62
        SELECT id, g, x FROM {db}.t WHERE id > 58 ORDER BY id
        ALTER TABLE {db}.t ADD KEY kg (g)
        SELECT id, g FROM {db}.t FORCE INDEX (kg) WHERE g > 50 ORDER BY g, id
        INSERT INTO {db}.t (id, a) VALUES (5, 1) ON DUPLICATE KEY UPDATE c = CONCAT(VALUES(a), '/', n)
        REPLACE INTO {db}.t (id, a, n) VALUES (6, 6, 6), (90, 9, 9)
        SELECT * FROM {db}.t WHERE id IN (5, 6, 90) ORDER BY id
        DELETE x FROM {db}.t x JOIN {db}.t y ON x.id = y.a + 20
        SELECT COUNT(*), SUM(LENGTH(c)) FROM {db}.t
        SELECT id, SUBSTRING(c, 2, 3), LENGTH(c) FROM {db}.t WHERE id % 13 = 2 ORDER BY id
        HANDLER {db}.t OPEN AS h2
        HANDLER h2 READ kn FIRST WHERE a = 2 LIMIT 3
        HANDLER h2 CLOSE
        CREATE TABLE {db}.u LIKE {db}.t
        INSERT INTO {db}.u (id, a, b, c, n, m, x) SELECT id, a, b, c, n, m, x FROM {db}.t
        SELECT * FROM {db}.u ORDER BY id
        CHECK TABLE {db}.t, {db}.u EXTENDED
        ANALYZE TABLE {db}.t
        OPTIMIZE TABLE {db}.t
        SELECT * FROM {db}.t ORDER BY id
        ALTER TABLE {db}.t FORCE
        SELECT * FROM {db}.t ORDER BY id
        TRUNCATE {db}.t
        INSERT INTO {db}.t (id) VALUES (1)
        SELECT * FROM {db}.t
        """,
        prefix="versions_",
    )


@pytest.fixture
def keys(server: Server) -> Iterator[KeyPair]:
    """Two databases, with one session each."""
    both = KeyPair(server, "columns")
    yield both
    if server.running():
        both.close()


def test_cascades_into_rows_of_older_versions(keys: KeyPair) -> None:
    """A cascade changes columns of the foreign key, wherever they stand by now."""
    for sql in lines(
        """
        CREATE TABLE p (id INT PRIMARY KEY, k INT, w INT, UNIQUE (k))
        INSERT INTO p SELECT seq, seq * 10, 0 FROM seq_1_to_9
        CREATE TABLE c (id INT PRIMARY KEY, x INT, pid INT, pk INT, y VARCHAR(9), \
            FOREIGN KEY (pid) REFERENCES p (id) ON DELETE CASCADE ON UPDATE CASCADE, \
            FOREIGN KEY (pk) REFERENCES p (k) ON DELETE SET NULL ON UPDATE CASCADE)
        INSERT INTO c SELECT seq, seq, 1 + seq % 9, 10 * (1 + seq % 8), seq FROM seq_1_to_40
        ALTER TABLE c ADD z INT NOT NULL DEFAULT 3 FIRST, MODIFY pk INT FIRST, DROP x
        ALTER TABLE p MODIFY k INT FIRST, ADD q INT DEFAULT 1 FIRST, DROP w
        INSERT INTO c (id, pid, pk) VALUES (41, 2, 30)
        UPDATE p SET id = id + 100 WHERE id IN (2, 3)
        UPDATE p SET k = k + 1 WHERE id < 50
        SELECT * FROM c ORDER BY id
        DELETE FROM p WHERE id IN (4, 102)
        SELECT * FROM c ORDER BY id
        SELECT * FROM p ORDER BY id
        INSERT INTO c (id, pid) VALUES (50, 4)
        ALTER TABLE c DROP y, ADD y INT NOT NULL DEFAULT 8 AFTER id
        ALTER TABLE c RENAME COLUMN pid TO parent, MODIFY id INT AFTER y
        UPDATE p SET id = id + 1000 WHERE id > 100
        DELETE FROM p WHERE k = 51
        SELECT * FROM c ORDER BY id
        CHECK TABLE c, p EXTENDED
        SHOW CREATE TABLE c
        SHOW CREATE TABLE p
        """
    ):
        keys.run(sql)


def test_a_column_of_a_foreign_key_stays(server: Server, database: str) -> None:
    """A column is neither dropped nor widened in place under a foreign key."""
    session = server.connect(database)
    for sql in lines(
        """
        CREATE TABLE p (id INT PRIMARY KEY, k VARCHAR(9), KEY (k))
        CREATE TABLE c (id INT PRIMARY KEY, pk VARCHAR(9), x INT, CONSTRAINT fk FOREIGN KEY (pk) REFERENCES p (k))
        """
    ):
        assert execute(session, sql).error == 0
    for sql in (
        "ALTER TABLE c DROP pk",
        "ALTER TABLE c DROP pk, DROP KEY fk",
        "ALTER TABLE p DROP k",
        "ALTER TABLE c MODIFY pk VARCHAR(20)",
        "ALTER TABLE p MODIFY k VARCHAR(20)",
    ):
        assert execute(session, sql).error, sql
    assert execute(session, "ALTER TABLE c DROP FOREIGN KEY fk, DROP KEY fk, DROP pk").error == 0
    assert execute(session, "ALTER TABLE p DROP k").error == 0
    session.close()


def test_algorithms(server: Server, database: str) -> None:
    """What is instant, and what is not."""
    session = server.connect(database)
    execute(
        session, "CREATE TABLE t (id INT PRIMARY KEY, a INT NOT NULL, b VARCHAR(9), c INT, KEY (c))"
    )
    execute(session, "INSERT INTO t SELECT seq, seq, seq, seq FROM seq_1_to_100")
    for clause in (
        "ADD d INT",
        "ADD e INT NOT NULL DEFAULT 3 FIRST, DROP a",
        "MODIFY b VARCHAR(300) AFTER id",
        "MODIFY e INT NULL",
        "ADD v INT AS (c + 1) VIRTUAL",
        "MODIFY v INT AS (c + 2) VIRTUAL AFTER id",
        "DROP v",
        "RENAME COLUMN d TO dd, ADD f TEXT DEFAULT 'f', ALTER e SET DEFAULT 8",
        "ADD g INT, DROP KEY c",
        "ADD h DATETIME DEFAULT CURRENT_TIMESTAMP",
    ):
        for algorithm in ("INSTANT, LOCK=NONE", "INPLACE", "NOCOPY"):
            execute(session, "CREATE TABLE copied LIKE t")
            outcome = execute(session, f"ALTER TABLE copied {clause}, ALGORITHM={algorithm}")
            assert outcome.error == 0, (clause, outcome)
            execute(session, "DROP TABLE copied")
        outcome = execute(session, f"ALTER TABLE t {clause}, ALGORITHM=INSTANT")
        assert (outcome.error, outcome.affected) == (0, 0), (clause, outcome)
    for clause in (
        "ADD d INT DEFAULT (id + 1)",
        "ADD d INT AUTO_INCREMENT UNIQUE",
        "ADD d INT AS (id) STORED",
        "ADD CONSTRAINT c1 CHECK (e > 0)",
        "MODIFY e INT NOT NULL",
        "MODIFY e BIGINT",
        "MODIFY b VARCHAR(20)",
        "MODIFY b TEXT",
        "ADD d INT, ADD KEY (d)",
        "DROP id",
    ):
        outcome = execute(session, f"ALTER TABLE t {clause}, ALGORITHM=INSTANT")
        assert outcome.error in (1845, 1846), (clause, outcome)
    # The index is filled without a copy.
    assert (
        execute(session, "ALTER TABLE t ADD d INT DEFAULT 5, ADD KEY (d), ALGORITHM=NOCOPY").error
        == 0
    )
    assert len(execute(session, "SELECT id FROM t FORCE INDEX (d) WHERE d = 5").rows) == 100
    session.close()


def test_older_snapshots(keys: KeyPair) -> None:
    """A transaction whose snapshot is older than the change gets InnoDB's answer."""
    for change in (
        "ADD n INT DEFAULT 4",
        "DROP b",
        "MODIFY b INT FIRST",
        "DROP b, ADD b INT DEFAULT 6",
        "MODIFY v VARCHAR(90)",
        "ADD g INT AS (id) VIRTUAL",
    ):
        keys.run("CREATE OR REPLACE TABLE t (id INT PRIMARY KEY, v VARCHAR(9), b INT, KEY (v))")
        keys.run("INSERT INTO t VALUES (1, 'a', 1), (2, 'b', 2)")
        keys.run("START TRANSACTION WITH CONSISTENT SNAPSHOT")
        keys.run(f"ALTER TABLE t {change}, ALGORITHM=INSTANT", "b")
        keys.run("INSERT INTO t (id, v) VALUES (3, 'c')", "b")
        keys.run("SELECT * FROM t")
        keys.run("SELECT id FROM t FORCE INDEX (v) WHERE v > ''")
        keys.run("SELECT id, v FROM t WHERE id = 1")
        keys.run("COMMIT")
        keys.run("SELECT * FROM t ORDER BY id")


def test_partitions_change_together(server: Server) -> None:
    """All partitions get the columns at once, also those that are newer than others."""
    same_as_innodb(
        server,
        """
        CREATE TABLE {db}.t (id INT, h INT, v VARCHAR(9), w INT, PRIMARY KEY (id, h), KEY (v)) ENGINE={engine} PARTITION BY RANGE (h) (PARTITION a VALUES LESS THAN (10), PARTITION b VALUES LESS THAN (20))
        INSERT INTO {db}.t SELECT seq, seq % 20, seq, seq FROM seq_1_to_50
        ALTER TABLE {db}.t ADD n INT NOT NULL DEFAULT 7 FIRST, ALGORITHM=INPLACE
        ALTER TABLE {db}.t ADD PARTITION (PARTITION c VALUES LESS THAN (30))
        INSERT INTO {db}.t (id, h) SELECT seq, seq % 30 FROM seq_51_to_90
        ALTER TABLE {db}.t MODIFY v VARCHAR(90) FIRST, DROP w, ADD x TEXT DEFAULT 'x'
        SELECT * FROM {db}.t ORDER BY id
        UPDATE {db}.t SET h = (h + 10) % 30 WHERE id % 4 = 0
        SELECT * FROM {db}.t ORDER BY id
        ALTER TABLE {db}.t REORGANIZE PARTITION a INTO (PARTITION a1 VALUES LESS THAN (5), PARTITION a2 VALUES LESS THAN (10))
        SELECT * FROM {db}.t ORDER BY id
        CREATE TABLE {db}.e LIKE {db}.t
        ALTER TABLE {db}.e REMOVE PARTITIONING
        ALTER TABLE {db}.e ADD z INT, DROP n
        ALTER TABLE {db}.e DROP z, ADD n INT NOT NULL DEFAULT 7 AFTER v
        INSERT INTO {db}.e (id, h, v) VALUES (1000, 15, 'e')
        ALTER TABLE {db}.t EXCHANGE PARTITION b WITH TABLE {db}.e
        SELECT * FROM {db}.t ORDER BY id
        SELECT * FROM {db}.e ORDER BY id
        ALTER TABLE {db}.t ADD y INT DEFAULT 2 AFTER id
        ALTER TABLE {db}.e ADD y INT DEFAULT 3 AFTER id
        SELECT * FROM {db}.t ORDER BY id
        SELECT * FROM {db}.e ORDER BY id
        ALTER TABLE {db}.t TRUNCATE PARTITION c
        SELECT COUNT(*), SUM(y), SUM(n) FROM {db}.t
        CHECK TABLE {db}.t, {db}.e EXTENDED
        """,
        prefix="parts_",
    )


def test_prepared_transactions_hold_the_columns(own_server: Callable[..., Server]) -> None:
    """A prepared XA transaction has rows of the old version, and no metadata lock after a crash."""
    server = own_server()
    server.query("CREATE DATABASE x")
    session = server.connect("x")
    for sql in lines(
        """
        CREATE TABLE t (id INT PRIMARY KEY, v VARCHAR(9), b TEXT)
        INSERT INTO t VALUES (1, 'a', REPEAT('b', 9000))
        XA START 'one'
        INSERT INTO t VALUES (2, 'two', REPEAT('c', 9000))
        UPDATE t SET v = 'changed' WHERE id = 1
        XA END 'one'
        XA PREPARE 'one'
        """
    ):
        assert execute(session, sql).error == 0, sql
    server.kill()
    server.start()
    session = server.connect("x")
    execute(session, "SET lock_wait_timeout = 1, innodb_lock_wait_timeout = 1")
    for clause in (
        "ADD n INT DEFAULT 3",
        "DROP b",
        "MODIFY b TEXT FIRST",
        "ADD n INT, ADD KEY (n)",
    ):
        outcome = execute(session, f"ALTER TABLE t {clause}, ALGORITHM=INPLACE")
        assert outcome.error == 1205, (clause, outcome)
    assert execute(session, "XA COMMIT 'one'").error == 0
    assert execute(session, "ALTER TABLE t ADD n INT DEFAULT 3 FIRST, ALGORITHM=INSTANT").error == 0
    found = execute(session, "SELECT n, id, v, LENGTH(b) FROM t ORDER BY id").rows
    assert found == ((3, 1, "changed", 9000), (3, 2, "two", 9000))
    server.kill()
    server.start()
    session = server.connect("x")
    assert execute(session, "SELECT n, id, v, LENGTH(b) FROM t ORDER BY id").rows == found
    assert execute(session, "CHECK TABLE t EXTENDED").rows[-1][3] == "OK"


def test_sessions_at_work_meet_each_change(server: Server, database: str) -> None:
    """Sessions read and write with prepared statements while the columns change under them."""
    session = server.connect(database)
    execute(session, "CREATE TABLE t (id INT PRIMARY KEY, a INT NOT NULL, b VARCHAR(20), KEY (a))")
    execute(session, "INSERT INTO t SELECT seq, seq, seq FROM seq_1_to_400")
    end = threading.Event()
    problems: list[str] = []

    def work(number: int) -> None:
        rng = Random(number)
        own = server.connect(database)
        execute(own, "PREPARE r FROM 'SELECT id, a, b FROM t WHERE id BETWEEN ? AND ?'")
        execute(own, "PREPARE w FROM 'UPDATE t SET a = a + 0, b = ? WHERE id = ?'")
        while not end.is_set() and not problems:
            at = rng.randrange(1, 400)
            found = execute(own, f"EXECUTE r USING {at}, {at + 5}")
            wrong = [row for row in found.rows if row[1] != row[0]]
            if wrong or found.error not in (0, 1213, 1205, 1412):
                problems.append(f"{found}")
            written = execute(own, f"EXECUTE w USING 'w{at}', {at}")
            if written.error not in (0, 1213, 1205):
                problems.append(f"{written}")
            if rng.random() < 0.3:
                execute(own, "BEGIN")
                first = execute(own, "SELECT SUM(a) FROM t")
                again = execute(own, "SELECT SUM(a) FROM t")
                if not first.error and first.rows != again.rows:
                    problems.append(f"{first} and then {again}")
                execute(own, "COMMIT")
        own.close()

    workers = [threading.Thread(target=work, args=(number,)) for number in range(4)]
    for worker in workers:
        worker.start()
    clauses = (
        "ADD n INT NOT NULL DEFAULT 5 FIRST",
        "ADD m TEXT DEFAULT 'm' AFTER id",
        "MODIFY b VARCHAR(200) FIRST",
        "DROP n",
        "MODIFY a INT NOT NULL AFTER m",
        "ADD n VARCHAR(9) NOT NULL DEFAULT 'n' AFTER a",
        "DROP m, MODIFY b VARCHAR(200) AFTER a",
        "DROP n",
    )
    try:
        for _ in range(4):
            for clause in clauses:
                outcome = execute(session, f"ALTER TABLE t {clause}, ALGORITHM=INSTANT")
                assert outcome.error == 0, (clause, outcome)
                if problems:
                    break
    finally:
        end.set()
        for worker in workers:
            worker.join()
    assert not problems, problems
    assert execute(session, "SELECT COUNT(*), SUM(a) FROM t").rows == ((400, 400 * 401 // 2),)
    assert execute(session, "CHECK TABLE t EXTENDED").rows[-1][3] == "OK"
    session.close()


def test_a_table_with_too_many_changes_is_copied(server: Server, database: str) -> None:
    """An ALTER of a table that has had many changes copies it, which makes room for new ones."""
    session = server.connect(database)
    execute(session, "CREATE TABLE t (id INT PRIMARY KEY, a INT DEFAULT 1)")
    execute(session, "INSERT INTO t VALUES (1, 1), (2, 2)")
    changes = 0
    while (
        execute(
            session, f"ALTER TABLE t ADD c{changes} INT DEFAULT {changes}, ALGORITHM=INSTANT"
        ).error
        == 0
    ):
        execute(session, f"INSERT INTO t (id) VALUES ({100 + changes})")
        if changes >= 3:
            assert (
                execute(session, f"ALTER TABLE t DROP c{changes - 3}, ALGORITHM=INSTANT").error == 0
            )
        changes += 1
        assert changes < 300
    assert changes > 100
    before = execute(session, "SELECT * FROM t ORDER BY id").rows
    assert execute(session, "ALTER TABLE t ADD last INT DEFAULT 9").error == 0
    assert execute(session, "SELECT * FROM t ORDER BY id").rows == tuple(
        (*row, 9) for row in before
    )
    assert execute(session, "ALTER TABLE t ADD next INT DEFAULT 8, ALGORITHM=INSTANT").error == 0
    assert execute(session, "CHECK TABLE t EXTENDED").rows[-1][3] == "OK"
    session.close()


TYPES = (
    ("INT", ("7", "-1", "id")),
    ("BIGINT UNSIGNED", ("0", "123456789012", "id * 3")),
    ("TINYINT", ("1", "-3", "id % 100")),
    ("DECIMAL(9,2)", ("1.25", "-3", "id / 4")),
    ("DOUBLE", ("0.5", "1e10", "id")),
    ("CHAR(6)", ("'x'", "''", "CONCAT('c', id % 90)")),
    ("VARCHAR(12)", ("'v'", "''", "CONCAT('vc', id)")),
    ("VARCHAR(400) CHARACTER SET utf8mb4", ("'ä€'", "''", "REPEAT('é', id % 300)")),
    ("VARBINARY(30)", ("'ab'", "X'00'", "CHAR(id)")),
    ("TEXT", ("'text'", "''", "REPEAT('t', id * 40 % 5000)")),
    ("BLOB", ("'b'", "X'00ff'", "REPEAT(X'01', id * 70 % 9000)")),
    ("DATE", ("'2020-01-02'", "'1999-12-31'", "'2001-01-01' + INTERVAL id DAY")),
    (
        "DATETIME(3)",
        ("'2020-01-02 03:04:05.678'", "'1999-12-31'", "'2001-01-01' + INTERVAL id HOUR"),
    ),
    ("ENUM('a','b','c')", ("'a'", "'c'", "1 + id % 3")),
    ("BIT(9)", ("b'101'", "3", "id % 500")),
)


class RandomTable:
    """A table of each engine with random changes of its columns and rows."""

    def __init__(self, pair: Pair, name: str, rng: Random) -> None:
        self.pair = pair
        self.name = name
        self.rng = rng
        # By column: its type's number, and whether it may be NULL.
        self.columns: dict[str, tuple[int, bool]] = {}
        self.next = 0
        self.next_id = 1
        self.instant = 0
        key = rng.choice(("PRIMARY KEY (id)", "PRIMARY KEY (k, id)", "KEY (id)"))
        self.run(
            f"CREATE TABLE {{db}}.{name} (id INT NOT NULL, k INT NOT NULL DEFAULT 4, {key}, KEY kk (k))",
            "ddl",
        )

    def run(self, sql: str, kind: str) -> Outcome:
        """Runs a statement on both engines."""
        return self.pair.run(sql, kind)

    def _place(self) -> str:
        names = list(self.columns)
        return self.rng.choice(["", "FIRST", "AFTER id", *(f"AFTER {name}" for name in names)])

    def _type(self, number: int, nullable: bool) -> str:
        return f"{TYPES[number][0]} {'' if nullable else 'NOT NULL'}"

    def clause(self, columns: dict[str, tuple[int, bool]], used: set[str]) -> str:
        """A random clause; `columns` is changed as the clause will change the table."""
        rng = self.rng
        free = [name for name in columns if name not in used]
        what = rng.choice(("add", "add", "add", "drop", "move", "null", "rename"))
        if what == "add" or not free:
            name, number = f"c{self.next}", rng.randrange(len(TYPES))
            self.next += 1
            nullable = rng.random() < 0.5
            default = rng.choice(("", f"DEFAULT {rng.choice(TYPES[number][1][:2])}"))
            if not nullable and TYPES[number][0].startswith(("DATE", "ENUM")):
                default = f"DEFAULT {TYPES[number][1][0]}"
            place = self._place()
            while any(place.endswith(f" {name}") for name in used):
                place = self._place()
            columns[name] = (number, nullable)
            used.add(name)
            return f"ADD {name} {self._type(number, nullable)} {default} {place}"
        name = rng.choice(free)
        used.add(name)
        number, nullable = columns[name]
        if what == "drop":
            del columns[name]
            return f"DROP {name}"
        if what == "rename":
            new = f"c{self.next}"
            self.next += 1
            used.add(new)
            columns[new] = columns.pop(name)
            return f"RENAME COLUMN {name} TO {new}"
        if what == "null":
            columns[name] = (number, True)
            return f"MODIFY {name} {self._type(number, True)}"
        return f"MODIFY {name} {self._type(number, nullable)} {rng.choice(('FIRST', 'AFTER id', 'AFTER k'))}"

    def alter(self) -> None:
        """One ALTER with a few clauses."""
        columns, used = dict(self.columns), set[str]()
        clauses = [self.clause(columns, used) for _ in range(self.rng.choice((1, 1, 2, 3)))]
        table = f"{{db}}.{self.name}"
        sql = f"ALTER TABLE {table} {', '.join(clauses)}"
        outcome = self.run(sql, "ddl")
        if outcome.error == 0:
            self.columns = columns
            self.instant += 1

    def write(self) -> None:
        """One statement that changes rows."""
        rng, table = self.rng, f"{{db}}.{self.name}"
        names = [name for name in self.columns if rng.random() < 0.6]
        values = [self._value(name) for name in names]
        low = rng.randrange(1, max(self.next_id, 2))
        what = rng.choice(("insert", "insert", "update", "update", "delete", "key"))
        if what == "insert":
            into = ", ".join(["id", "k", *names])
            rows = rng.randrange(1, 20)
            texts = ", ".join(["seq AS id", "seq % 5 AS k"])
            chosen = ", ".join(["id", "k", *values])
            self.run(
                f"INSERT INTO {table} ({into}) SELECT {chosen} FROM (SELECT {texts} FROM "
                f"seq_{self.next_id}_to_{self.next_id + rows}) s",
                "change",
            )
            self.next_id += rows + 1
        elif what == "update" and names:
            sets = ", ".join(f"{name} = {value}" for name, value in zip(names, values, strict=True))
            self.run(
                f"UPDATE {table} SET {sets} WHERE id BETWEEN {low} AND {low + 9} ORDER BY id",
                "change",
            )
        elif what == "key":
            self.run(f"UPDATE {table} SET k = k + 1 WHERE id % 7 = {low % 7} ORDER BY id", "change")
        else:
            self.run(f"DELETE FROM {table} WHERE id BETWEEN {low} AND {low + 2}", "change")

    def _value(self, name: str) -> str:
        number, nullable = self.columns[name]
        if nullable and self.rng.random() < 0.2:
            return "NULL"
        return self.rng.choice(TYPES[number][1])

    def compare(self) -> None:
        """Compares definition and rows."""
        table = f"{{db}}.{self.name}"
        self.run(f"SELECT * FROM {table}", "rows")
        self.run(f"SELECT * FROM {table} FORCE INDEX (kk) WHERE k = 2", "rows")
        self.run(f"SELECT id, k FROM {table} FORCE INDEX (kk)", "rows")
        if self.columns:
            names = self.rng.sample(list(self.columns), min(3, len(self.columns)))
            self.run(f"SELECT {', '.join(names)}, id FROM {table} WHERE id % 3 = 1", "rows")
            self.run(f"SELECT MAX({names[0]}), COUNT({names[0]}) FROM {table}", "rows")
        self.run(f"CHECK TABLE {table} EXTENDED", "check")


def test_random_changes_beside_innodb(own_server: Callable[..., Server], seed: int) -> None:
    """Random changes of columns between random changes of rows, with crashes."""
    server = own_server("--innodb-stats-persistent=0")
    pair = Pair(server, prefix="random_")
    pair.reset(SETTINGS, one_session=True)
    for round_ in range(ROUNDS):
        rng = Random(f"{seed} {round_}")
        table = RandomTable(pair, f"t{round_}", rng)
        for _ in range(25):
            for _ in range(rng.randrange(4)):
                table.write()
            table.alter()
            if rng.random() < 0.4:
                table.compare()
        table.compare()
        assert table.instant > 10
        if rng.random() < 0.5:
            pair.close()
            server.kill()
            server.start()
            pair.open_sessions(SETTINGS, one_session=True)
            table.compare()
            table.alter()
            table.write()
            table.compare()
    pair.close()


def test_the_tool_checks_rows_of_all_versions(own_server: Callable[..., Server]) -> None:
    """`firn check` reads the rows and computes their index entries without a server."""
    server = own_server()
    server.query("CREATE DATABASE x")
    session = server.connect("x")
    execute(session, "CREATE TABLE t (id INT PRIMARY KEY, a INT, KEY (a))")
    for number in range(6):
        execute(session, f"INSERT INTO t (id, a) VALUES ({number}, {number})")
        added = f"ALTER TABLE t ADD c{number} INT DEFAULT {number} FIRST, ALGORITHM=INSTANT"
        assert execute(session, added).error == 0
    assert execute(session, "ALTER TABLE t DROP c2, ADD KEY (c3), ALGORITHM=NOCOPY").error == 0
    execute(session, "INSERT INTO t (id) VALUES (77)")
    session.close()
    server.stop()
    directory = server.data / "#firn"
    told = subprocess.run([TOOL, "check", directory], capture_output=True, text=True, check=False)
    assert told.returncode == 0, told.stdout + told.stderr
    server.start()
    assert server.query("SELECT COUNT(*), SUM(c3), MAX(c5) FROM x.t FORCE INDEX (c3)") == (
        (7, 21, 5),
    )
