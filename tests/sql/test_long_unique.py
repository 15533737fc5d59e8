"""Keys that the server checks itself: long UNIQUE, USING HASH, periods WITHOUT OVERLAPS.

No two sessions may both insert a value, at any isolation level, although neither sees the other's
row before the commit.
"""

from __future__ import annotations

import random
import threading
import time
from collections.abc import Callable
from typing import Any

import pymysql
import pytest
from server import ENGINE, LOCK_WAIT_TIMEOUTS, Server

ISOLATIONS = ["READ COMMITTED", "REPEATABLE READ", "SERIALIZABLE"]
TIMEOUT = LOCK_WAIT_TIMEOUTS.get(ENGINE.upper(), "lock_wait_timeout")

TABLES = {
    "text": "CREATE TABLE t (id INT PRIMARY KEY, v TEXT, UNIQUE (v)) ENGINE={engine}",
    "no primary key": "CREATE TABLE t (id INT, v TEXT, UNIQUE (v)) ENGINE={engine}",
    "using hash": (
        "CREATE TABLE t (id INT PRIMARY KEY, v VARCHAR(50), UNIQUE (v) USING HASH) ENGINE={engine}"
    ),
    "long columns": (
        "CREATE TABLE t (id INT PRIMARY KEY, v VARCHAR(3000), w VARCHAR(3000) DEFAULT 'x', "
        "UNIQUE (v, w)) ENGINE={engine} DEFAULT CHARSET=utf8mb4"
    ),
    "partitions": (
        "CREATE TABLE t (id INT, v VARCHAR(99), w VARCHAR(4000) DEFAULT 'x', UNIQUE (v, w)) "
        "ENGINE={engine} PARTITION BY KEY (v) PARTITIONS 3"
    ),
}
OVERLAPS = {
    "primary key": (
        "CREATE TABLE p (id INT, a DATE, b DATE, PERIOD FOR x (a, b), "
        "PRIMARY KEY (id, x WITHOUT OVERLAPS)) ENGINE={engine}"
    ),
    "unique": (
        "CREATE TABLE p (id INT, a DATE, b DATE, n INT AUTO_INCREMENT PRIMARY KEY, "
        "PERIOD FOR x (a, b), UNIQUE (id, x WITHOUT OVERLAPS)) ENGINE={engine}"
    ),
}


def _rows(session: pymysql.Connection[Any], sql: str) -> list[tuple[Any, ...]]:
    with session.cursor() as cursor:
        cursor.execute(sql)
        return list(cursor.fetchall())


def _run(session: pymysql.Connection[Any], *statements: str) -> None:
    for statement in statements:
        _rows(session, statement)


def _outcome(session: pymysql.Connection[Any], sql: str) -> Any:
    try:
        return _rows(session, sql)
    except pymysql.err.MySQLError as error:
        return error.args


class Waiting:
    """A statement in a thread of its own."""

    def __init__(self, session: pymysql.Connection[Any], sql: str) -> None:
        self.outcome: Any = None
        self.thread = threading.Thread(target=self._execute, args=(session, sql))
        self.thread.start()

    def _execute(self, session: pymysql.Connection[Any], sql: str) -> None:
        self.outcome = _outcome(session, sql)

    def waits(self) -> bool:
        """Whether it is still not done a moment later."""
        self.thread.join(0.3)
        return self.thread.is_alive()

    def result(self) -> Any:
        """Its rows or its error, once it is done."""
        self.thread.join(30)
        assert not self.thread.is_alive()
        return self.outcome


CHANGES = (
    "INSERT INTO t (id, v) VALUES (1, REPEAT('a', 20)), (2, REPEAT('b', 30)), (3, NULL), (4, NULL)",
    "INSERT INTO t (id, v) VALUES (5, REPEAT('a', 20))",
    "INSERT INTO t (id, v) VALUES (6, REPEAT('A', 20))",
    "INSERT INTO t (id, v) VALUES (7, CONCAT(REPEAT('a', 20), ' '))",
    "INSERT IGNORE INTO t (id, v) VALUES (8, REPEAT('b', 30)), (9, 'new')",
    "INSERT INTO t (id, v) VALUES (10, REPEAT('b', 30)) ON DUPLICATE KEY UPDATE id = 20",
    "REPLACE INTO t (id, v) VALUES (21, 'new')",
    "UPDATE t SET v = REPEAT('a', 20) WHERE id = 21",
    "UPDATE IGNORE t SET v = REPEAT('a', 20) WHERE id IN (20, 21)",
    "UPDATE t SET v = 'other' WHERE id = 1",
    "INSERT INTO t (id, v) VALUES (22, REPEAT('a', 20))",
    "DELETE FROM t WHERE id = 22",
    "INSERT INTO t (id, v) VALUES (23, REPEAT('a', 20))",
    "UPDATE t SET id = id + 100 WHERE v = 'other'",
    "INSERT INTO t (id, v) VALUES (24, 'p'), (25, 'p')",
    "INSERT INTO t (id, v) SELECT seq + 200, seq % 40 FROM seq_1_to_50",
    "INSERT INTO t (id, v) SELECT seq + 200, seq FROM seq_1_to_50",
    "ALTER TABLE t ADD COLUMN z INT",
    "INSERT INTO t (id, v) VALUES (300, '7')",
    "ALTER TABLE t COMMENT = 'c'",
    "INSERT INTO t (id, v) VALUES (300, '8')",
    "TRUNCATE TABLE t",
    "INSERT INTO t (id, v) VALUES (300, '8')",
)


@pytest.mark.parametrize("table", TABLES)
@pytest.mark.parametrize("isolation", ["READ COMMITTED", "REPEATABLE READ"])
def test_one_session_as_on_innodb(
    server: Server, database: str, table: str, isolation: str
) -> None:
    told = {}
    for engine in ("InnoDB", ENGINE):
        server.query(f"CREATE OR REPLACE DATABASE {database}")
        session = server.connect(database)
        _run(session, f"SET SESSION TRANSACTION ISOLATION LEVEL {isolation}")
        _run(session, TABLES[table].format(engine=engine))
        story: list[Any] = []
        for change in CHANGES:
            outcome = _outcome(session, change)
            rows = _rows(session, "SELECT id, v FROM t ORDER BY id, v")
            story.append((change, outcome, rows))
        story.append(_rows(session, "CHECK TABLE t EXTENDED")[-1][2:])
        told[engine] = story
        session.close()
    for ours, theirs in zip(told[ENGINE], told["InnoDB"], strict=True):
        if (
            isolation == "READ COMMITTED"
            and ours[0].startswith("UPDATE IGNORE")
            and "not currently supported" in str(theirs[1])
        ):
            # InnoDB refuses it there, because it checks after the write.
            assert ours[1] == []
            return
        assert ours == theirs


@pytest.mark.parametrize("table", TABLES)
@pytest.mark.parametrize("isolation", ISOLATIONS)
@pytest.mark.parametrize("ending", ["COMMIT", "ROLLBACK"])
def test_the_second_insert_of_a_value_waits(
    server: Server, database: str, table: str, isolation: str, ending: str
) -> None:
    first, second = server.connect(database), server.connect(database)
    _run(first, TABLES[table].format(engine=ENGINE))
    for session in (first, second):
        _run(session, f"SET SESSION TRANSACTION ISOLATION LEVEL {isolation}", "BEGIN")
        if isolation != "SERIALIZABLE":
            # A snapshot from before both inserts; SERIALIZABLE would lock the rows.
            _run(session, "SELECT COUNT(*) FROM t")
    _run(first, "INSERT INTO t (id, v) VALUES (1, 'same')")
    waiting = Waiting(second, "INSERT INTO t (id, v) VALUES (2, 'same')")
    assert waiting.waits()
    _run(first, ending)
    outcome = waiting.result()
    _run(second, "COMMIT")
    if ending == "COMMIT":
        assert outcome[0] == 1062
        assert _rows(first, "SELECT id FROM t") == [(1,)]
    else:
        assert outcome == []
        assert _rows(first, "SELECT id FROM t") == [(2,)]
    first.close()
    second.close()


@pytest.mark.parametrize(
    "change",
    [
        "DELETE FROM t WHERE id = 1",
        "UPDATE t SET v = 'moved' WHERE id = 1",
    ],
)
def test_a_value_that_may_come_back_is_waited_for(
    server: Server, database: str, change: str
) -> None:
    first, second = server.connect(database), server.connect(database)
    _run(first, TABLES["text"].format(engine=ENGINE), "INSERT INTO t VALUES (1, 'same')")
    _run(first, "BEGIN", change)
    waiting = Waiting(second, "INSERT INTO t VALUES (2, 'same')")
    assert waiting.waits()
    _run(first, "ROLLBACK")
    assert waiting.result()[0] == 1062
    first.close()
    second.close()


def test_different_values_do_not_wait(server: Server, database: str) -> None:
    first, second = server.connect(database), server.connect(database)
    _run(first, TABLES["text"].format(engine=ENGINE))
    for session in (first, second):
        _run(session, f"SET SESSION {TIMEOUT} = 3", "BEGIN")
    for number in range(50):
        for session, name in ((first, "f"), (second, "s")):
            identity = number * 2 + (session is second)
            _run(session, f"INSERT INTO t VALUES ({identity}, '{name}{number}')")
    _run(first, "COMMIT")
    _run(second, "COMMIT")
    assert _rows(first, "SELECT COUNT(*), COUNT(DISTINCT v) FROM t") == [(100, 100)]
    first.close()
    second.close()


def test_an_existing_table_gets_the_key(server: Server, database: str) -> None:
    session = server.connect(database)
    _run(
        session,
        f"CREATE TABLE t (id INT PRIMARY KEY, v LONGTEXT) ENGINE={ENGINE}",
        "INSERT INTO t SELECT seq, CONCAT('v', seq) FROM seq_1_to_300",
    )
    _run(session, "INSERT INTO t VALUES (301, 'v7')")
    assert _outcome(session, "ALTER TABLE t ADD UNIQUE (v)")[0] == 1062
    _run(session, "DELETE FROM t WHERE id = 7", "ALTER TABLE t ADD UNIQUE (v)")
    assert _outcome(session, "INSERT INTO t VALUES (302, 'v7')")[0] == 1062
    _run(session, "ALTER TABLE t ENGINE=InnoDB", f"ALTER TABLE t ENGINE={ENGINE}")
    assert _outcome(session, "INSERT INTO t VALUES (302, 'v7')")[0] == 1062
    _run(session, "ALTER TABLE t DROP INDEX v", "INSERT INTO t VALUES (302, 'v7')")
    assert _rows(session, "CHECK TABLE t EXTENDED")[-1][3] == "OK"
    session.close()


def _race(server: Server, database: str, insert: Callable[[random.Random], str]) -> None:
    def write(number: int) -> None:
        session = server.connect(database)
        choice = random.Random(number)
        _run(session, f"SET SESSION TRANSACTION ISOLATION LEVEL {ISOLATIONS[number % 3]}")
        for _ in range(60):
            _run(session, "BEGIN")
            for _ in range(3):
                outcome = _outcome(session, insert(choice))
                if outcome and outcome[0] == 1213:
                    break
                assert not outcome or outcome[0] == 1062, outcome
            _run(session, "ROLLBACK" if choice.random() < 0.3 else "COMMIT")
        session.close()

    threads = [threading.Thread(target=write, args=(number,)) for number in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()


def test_a_race_leaves_no_duplicate(server: Server, database: str) -> None:
    session = server.connect(database)
    _run(
        session,
        f"CREATE TABLE t (id INT AUTO_INCREMENT PRIMARY KEY, v TEXT, UNIQUE (v)) ENGINE={ENGINE}",
    )

    def insert(choice: random.Random) -> str:
        if choice.random() < 0.2:
            return f"DELETE FROM t WHERE v = '{choice.randrange(20)}'"
        return f"INSERT INTO t (v) VALUES ('{choice.randrange(20)}')"

    _race(server, database, insert)
    assert _rows(session, "SELECT v FROM t GROUP BY v HAVING COUNT(*) > 1") == []
    assert _rows(session, "SELECT COUNT(*) > 5 FROM t") == [(1,)]
    session.close()


PERIODS = (
    "INSERT INTO p (id, a, b) VALUES (1, '2020-01-01', '2020-02-01')",
    "INSERT INTO p (id, a, b) VALUES (1, '2020-01-31', '2020-03-01')",
    "INSERT INTO p (id, a, b) VALUES (1, '2020-02-01', '2020-03-01'), "
    "(2, '2020-01-01', '2021-01-01')",
    "INSERT INTO p (id, a, b) VALUES (1, '2019-12-01', '2020-01-02')",
    "INSERT INTO p (id, a, b) VALUES (1, '2019-12-01', '2020-12-01')",
    "UPDATE p SET b = '2020-02-15' WHERE id = 1 AND a = '2020-01-01'",
    "UPDATE p SET b = '2020-01-15' WHERE id = 1 AND a = '2020-01-01'",
    "UPDATE p SET id = 1 WHERE id = 2",
    "INSERT IGNORE INTO p (id, a, b) VALUES (2, '2020-05-01', '2020-06-01'), "
    "(3, '2020-05-01', '2020-06-01')",
    "DELETE FROM p FOR PORTION OF x FROM '2020-03-01' TO '2020-04-01' WHERE id = 2",
    "UPDATE p FOR PORTION OF x FROM '2020-06-01' TO '2020-07-01' SET id = 4 WHERE id = 2",
    "INSERT INTO p (id, a, b) VALUES (2, '2020-03-10', '2020-03-20')",
    "INSERT INTO p (id, a, b) VALUES (4, '2020-06-10', '2020-06-20')",
)


@pytest.mark.parametrize("table", OVERLAPS)
@pytest.mark.parametrize("isolation", ["READ COMMITTED", "REPEATABLE READ"])
def test_periods_as_on_innodb(server: Server, database: str, table: str, isolation: str) -> None:
    told = {}
    for engine in ("InnoDB", ENGINE):
        server.query(f"CREATE OR REPLACE DATABASE {database}")
        session = server.connect(database)
        _run(session, f"SET SESSION TRANSACTION ISOLATION LEVEL {isolation}")
        _run(session, OVERLAPS[table].format(engine=engine))
        story: list[Any] = []
        for change in PERIODS:
            outcome = _outcome(session, change)
            story.append((change, outcome, _rows(session, "SELECT id, a, b FROM p ORDER BY id, a")))
        story.append(_rows(session, "CHECK TABLE p EXTENDED")[-1][2:])
        told[engine] = story
        session.close()
    assert told[ENGINE] == told["InnoDB"]
    assert len(told[ENGINE][-2][2]) > 4


@pytest.mark.parametrize("table", OVERLAPS)
@pytest.mark.parametrize("isolation", ISOLATIONS)
def test_the_second_of_two_overlapping_periods_waits(
    server: Server, database: str, table: str, isolation: str
) -> None:
    first, second, third = (server.connect(database) for _ in range(3))
    _run(first, OVERLAPS[table].format(engine=ENGINE))
    _run(first, "INSERT INTO p (id, a, b) VALUES (1, '2000-01-01', '2001-01-01')")
    for session in (first, second, third):
        _run(session, f"SET SESSION TRANSACTION ISOLATION LEVEL {isolation}", "BEGIN")
        _run(session, f"SET SESSION {TIMEOUT} = 20")
    _run(first, "INSERT INTO p (id, a, b) VALUES (1, '2020-01-01', '2020-02-01')")
    waiting = Waiting(second, "INSERT INTO p (id, a, b) VALUES (1, '2020-01-15', '2020-04-01')")
    assert waiting.waits()
    # Another value of the other columns.
    _run(third, "INSERT INTO p (id, a, b) VALUES (2, '2020-01-15', '2020-04-01')", "COMMIT")
    _run(first, "COMMIT")
    assert waiting.result()[0] == 1062
    _run(second, "ROLLBACK")
    assert _rows(first, "SELECT COUNT(*) FROM p") == [(3,)]
    for session in (first, second, third):
        session.close()


def test_a_race_leaves_no_overlap(server: Server, database: str) -> None:
    session = server.connect(database)
    _run(session, OVERLAPS["unique"].format(engine=ENGINE))

    def insert(choice: random.Random) -> str:
        begin = choice.randrange(300)
        dates = [
            f"'2020-01-01' + INTERVAL {begin + more} DAY" for more in (0, choice.randint(1, 9))
        ]
        return f"INSERT INTO p (id, a, b) VALUES ({choice.randrange(2)}, {dates[0]}, {dates[1]})"

    _race(server, database, insert)
    overlaps = (
        "SELECT COUNT(*) FROM p JOIN p q ON p.id = q.id AND p.n < q.n AND p.a < q.b AND q.a < p.b"
    )
    assert _rows(session, overlaps) == [(0,)]
    assert _rows(session, "SELECT COUNT(*) > 20 FROM p") == [(1,)]
    session.close()


def test_the_guard_is_held_until_the_transaction_ends(server: Server, database: str) -> None:
    """A statement that fails has checked the value: the value stays locked, as a duplicate does."""
    first, second = server.connect(database), server.connect(database)
    _run(first, TABLES["text"].format(engine=ENGINE), "INSERT INTO t VALUES (1, 'one')", "BEGIN")
    assert _outcome(first, "INSERT INTO t VALUES (1, 'two')")[0] == 1062
    waiting = Waiting(second, "INSERT INTO t VALUES (2, 'two')")
    time.sleep(0.1)
    _run(first, "ROLLBACK")
    assert waiting.result() == []
    first.close()
    second.close()
