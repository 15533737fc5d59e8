"""Conditions that entries of an index decide, before their rows are read.

The answers, the plans and the number of rows that a condition rejects are those of InnoDB.
"""

from __future__ import annotations

import threading
import time
from random import Random
from typing import Any

import pymysql
import pytest
from server import ENGINE, IS_FIRN, Server

ROWS = 600
STATEMENTS = 900

# Entries of `t` and `u` hold texts beside their sort keys, `p` a prefix, `g` a virtual column. `d`
# descends, and `n` may be NULL.
TABLE = """CREATE TABLE {name} (
    id INT NOT NULL, part INT NOT NULL, a INT NOT NULL, n INT, d DATETIME(3), f DOUBLE,
    t VARCHAR(30) CHARACTER SET utf8mb4 COLLATE utf8mb4_general_ci,
    u CHAR(12) CHARACTER SET latin1 COLLATE latin1_swedish_ci NOT NULL,
    c DECIMAL(9, 2), e ENUM('x', 'y', 'z'), b VARBINARY(20),
    g INT AS (a * 10 + part) VIRTUAL,
    wide VARCHAR(300) COLLATE utf8mb4_bin NOT NULL,
    PRIMARY KEY (part, id), UNIQUE KEY q (n, a, id), KEY a (a, n, d), KEY t (t, f), KEY u (u, c, e),
    KEY p (wide(5), a), KEY g (g, b), KEY d (d DESC, a)) ENGINE={engine}"""


def _row(rng: Random, ident: int) -> list[Any]:
    def maybe(value: Any) -> Any:
        return None if rng.random() < 0.15 else value

    return [
        ident,
        rng.randrange(3),
        rng.randrange(20),
        maybe(rng.randrange(-9, 9)),
        maybe(f"2026-0{rng.randint(1, 9)}-11 10:00:0{rng.randrange(9)}.{rng.randrange(3)}25"),
        maybe(rng.choice([-0.0, 0.0, 1.5, -2.25, 1e30])),
        maybe(rng.choice(["a", "A", "a ", "ä", "b", "B b", "straße", "STRASSE", ""])),
        rng.choice(["x", "X", "é", "e", "E ", ""]),
        maybe(rng.choice([-1.5, 0, 3.25, 99999.99])),
        maybe(rng.choice("xyz")),
        maybe(rng.randbytes(rng.randrange(4))),
        rng.choice(["wide", "wider", "WIDER", "other"]) * rng.randint(1, 40),
    ]


COLUMNS = "id, part, a, n, d, f, t, u, c, e, b, wide"


def _fill(rng: Random, server: Server, database: str) -> None:
    marks = ", ".join(["%s"] * len(COLUMNS.split(", ")))
    rows = [_row(rng, ident) for ident in range(ROWS)]
    for name, engine in (("f", ENGINE), ("i", "InnoDB")):
        server.query(TABLE.format(name=f"{database}.{name}", engine=engine))
        with server.connect(database) as connection, connection.cursor() as cursor:
            cursor.executemany(f"INSERT INTO {name} ({COLUMNS}) VALUES ({marks})", rows)
            connection.commit()


def _term(rng: Random, of: str = "") -> str:
    """A condition on a column that an index has."""
    number = rng.randrange(-9, 20)
    term = rng.choice(
        [
            "{of}a {op} {number}",
            "{of}a BETWEEN {number} AND {number} + 6",
            "{of}n {op} {number}",
            "{of}n IS NULL",
            "{of}n IS NOT NULL",
            "{of}n <=> NULL",
            "{of}n IN (1, 2, {number})",
            "MOD({of}a, 3) = 1",
            "{of}id % 4 = 1",
            "{of}part {op} 1",
            "{of}d > '2026-04-01'",
            "MONTH({of}d) = {month}",
            "{of}f {op} 0",
            "{of}f + 1 > 1",
            "{of}t = 'a'",
            "BINARY {of}t = 'A'",
            "{of}t LIKE 'a%%'",
            "{of}t > 'a'",
            "LENGTH({of}t) = 2",
            "CONCAT({of}t, '|') = 'a |'",
            "{of}u = 'e'",
            "HEX({of}u) = '45'",
            "{of}u LIKE 'x%%'",
            "{of}c {op} 3.25",
            "{of}e IN ('x', 'z')",
            "{of}e + 0 > 1",
            "{of}b > ''",
            "HEX({of}b) LIKE '%%7%%'",
            "{of}g {op} 100",
            "{of}g % 7 = 2",
            "{of}wide LIKE 'wi%%'",
            "{of}wide = 'wider'",
        ]
    )
    return term.format(
        of=of,
        op=rng.choice(["<", "<=", "=", ">=", ">", "<>"]),
        number=number,
        month=rng.randint(1, 9),
    ).replace("%%", "%")


def _where(rng: Random, of: str = "") -> str:
    terms = [_term(rng, of) for _ in range(rng.randint(1, 4))]
    text = " AND ".join(terms)
    return f"({text}) OR ({_term(rng, of)} AND {_term(rng, of)})" if rng.random() < 0.2 else text


def _statement(rng: Random) -> str:
    where, other = _where(rng), _where(rng, "r.")
    index = rng.choice(["q", "a", "t", "u", "p", "g", "d"])
    force = rng.choice(["", f"FORCE INDEX ({index})", f"FORCE INDEX ({index})"])
    key = {"q": "n", "a": "a", "t": "t", "u": "u", "p": "wide", "g": "g", "d": "d"}[index]
    direction = rng.choice(["", "DESC"])
    join = rng.choice(["q.a = r.a", "q.n = r.n", "q.t = r.t", "q.g = r.g", "q.u = r.u"])
    return rng.choice(
        [
            f"SELECT * FROM # {force} WHERE {where}",
            f"SELECT * FROM # {force} WHERE {where}",
            f"SELECT id, wide FROM # {force} WHERE {where} ORDER BY {key} {direction}, part, id",
            f"SELECT {key} FROM # {force} WHERE {where} ORDER BY {key} {direction}, part, id "
            "LIMIT 5",
            f"SELECT COUNT(*), MAX(wide) FROM # {force} WHERE {where} GROUP BY {key}",
            f"SELECT COUNT(*) FROM # {force} WHERE {where}",
            f"SELECT q.id, r.id, r.wide FROM # q JOIN # r {force} ON {join} "
            f"WHERE q.id < 40 AND {other}",
            f"SELECT q.id, r.id, r.wide FROM # q LEFT JOIN # r {force} ON {join} AND {other} "
            "WHERE q.id < 40",
            f"SELECT q.id, (SELECT MAX(r.wide) FROM # r {force} WHERE {join} AND {other}) FROM # q "
            "WHERE q.id < 60",
            f"SELECT q.id FROM # q WHERE q.id < 90 AND EXISTS (SELECT 1 FROM # r {force} "
            f"WHERE {join} AND r.wide > 'p' AND {other})",
            f"SELECT q.id FROM # q WHERE q.a IN (SELECT r.a FROM # r {force} WHERE {other})",
            f"SELECT q.id, r.id, r.wide FROM # q STRAIGHT_JOIN # r FORCE INDEX (a, d) ON r.a > q.n "
            f"WHERE q.id < 20 AND {other}",
            f"SELECT id, wide FROM # {force} WHERE {where} UNION SELECT id, u FROM # "
            f"WHERE {_where(rng)}",
        ]
    )


def _answer(connection: pymysql.Connection[Any], statement: str) -> Any:
    with connection.cursor() as cursor:
        try:
            cursor.execute(statement)
        except pymysql.MySQLError as error:
            return error.args
        rows = [repr(row) for row in cursor.fetchall()]
    if "ORDER BY" in statement and "LIMIT" in statement:
        return rows
    return sorted(rows)


def _counters(connection: pymysql.Connection[Any]) -> dict[str, int]:
    with connection.cursor() as cursor:
        cursor.execute("SHOW SESSION STATUS LIKE 'Handler_icp%'")
        return {name: int(value) for name, value in cursor.fetchall()}


def test_random_statements_agree_with_innodb(server: Server, database: str, seed: int) -> None:
    rng = Random(seed)
    _fill(rng, server, database)
    with server.connect(database) as one, server.connect(database) as two:
        connections = {"f": one, "i": two}
        for number in range(STATEMENTS):
            if number % 150 == 75:
                _change(rng, connections)
            statement = _statement(rng)
            answers = [_answer(each, statement.replace("#", n)) for n, each in connections.items()]
            assert answers[0] == answers[1], f"seed {seed}, statement {number}: {statement}"
        asked = _counters(one)
        assert asked["Handler_icp_attempts"] > 1000
        assert asked["Handler_icp_match"] < asked["Handler_icp_attempts"]


def _change(rng: Random, connections: dict[str, pymysql.Connection[Any]]) -> None:
    """Changes rows of both tables, within a transaction that stays open every other time.

    No change touches the virtual column: InnoDB's index on it then gives other rows than InnoDB's
    table, as a scan of the table shows.
    """
    begin = rng.choice(["COMMIT", "BEGIN"])
    cursors = {name: each.cursor() for name, each in connections.items()}
    for cursor in cursors.values():
        cursor.execute(begin)
    for _ in range(30):
        ident, text = rng.randrange(ROWS), rng.choice(["a", "A", "ä", "zz"])
        change = rng.choice(
            [
                f"UPDATE # SET t = '{text}' WHERE id = {ident}",
                f"UPDATE # SET c = c + 1, u = '{text}' WHERE id = {ident}",
                f"DELETE FROM # WHERE id = {ident}",
                f"UPDATE # SET n = NULL, wide = REPEAT('{text}', 9) WHERE id = {ident}",
            ]
        )
        for name, cursor in cursors.items():
            cursor.execute(change.replace("#", name))


PLANS = [
    "SELECT * FROM # FORCE INDEX (a) WHERE a BETWEEN 3 AND 9 AND n = 2",
    "SELECT * FROM # FORCE INDEX (a) WHERE a = 3 AND MONTH(d) = 4",
    "SELECT * FROM # FORCE INDEX (t) WHERE t LIKE 'a%%' AND f > 1",
    "SELECT * FROM # FORCE INDEX (q) WHERE n > 3 AND a = 2 AND id % 2 = 1",
    "SELECT * FROM # FORCE INDEX (p) WHERE wide LIKE 'wi%%' AND a = 4",
    "SELECT a, n FROM # FORCE INDEX (a) WHERE a BETWEEN 3 AND 9 AND n = 2",
    "SELECT q.id, r.wide FROM # q STRAIGHT_JOIN # r FORCE INDEX (a) ON r.a = q.n AND r.d > '2026'"
    " WHERE q.part = 1",
    "SELECT * FROM # FORCE INDEX (a) WHERE a BETWEEN 3 AND 9 AND n = 2 ORDER BY a DESC LIMIT 3",
    "SELECT * FROM # WHERE part = 1 AND id % 3 = 1",
]


@pytest.mark.parametrize("number", range(len(PLANS)))
def test_plans_and_counters_are_those_of_innodb(
    server: Server, database: str, seed: int, number: int
) -> None:
    _fill(Random(seed), server, database)
    extras, counters = [], []
    for name in "fi":
        server.query(f"ANALYZE TABLE {database}.{name}")
        with server.connect(database) as connection, connection.cursor() as cursor:
            statement = PLANS[number].replace("#", name).replace("%%", "%")
            cursor.execute(f"EXPLAIN {statement}")
            extras.append([row[-1] for row in cursor.fetchall()])
            cursor.execute("FLUSH STATUS")
            cursor.execute(statement)
            counters.append(_counters(connection))
    assert extras[0] == extras[1]
    assert counters[0]["Handler_icp_match"] == counters[1]["Handler_icp_match"]
    if "LIMIT" not in PLANS[number]:
        # At the end of a range InnoDB asks about one entry more.
        more = counters[1]["Handler_icp_attempts"] - counters[0]["Handler_icp_attempts"]
        assert more >= 0
        assert more == 0 or counters[0]["Handler_icp_attempts"] > 0


@pytest.mark.skipif(not IS_FIRN, reason="reads of rows are counted by FIRN")
def test_rows_that_a_condition_rejects_are_not_read(server: Server, database: str) -> None:
    server.query(
        f"CREATE TABLE {database}.t (id INT PRIMARY KEY, a INT, b INT, v VARCHAR(100), KEY (a, b))"
        f" ENGINE={ENGINE} SELECT seq id, 1 a, seq % 1000 b, REPEAT('x', 100) v FROM seq_1_to_20000"
    )
    with server.connect(database) as connection, connection.cursor() as cursor:
        for switch, wanted in (("off", 20000), ("on", 20)):
            cursor.execute(f"SET optimizer_switch = 'index_condition_pushdown={switch}'")
            cursor.execute("FLUSH STATUS")
            cursor.execute("SELECT COUNT(v) FROM t FORCE INDEX (a) WHERE a = 1 AND b % 1000 = 7")
            assert cursor.fetchone() == (20,)
            cursor.execute("SHOW SESSION STATUS LIKE 'Handler_read_next'")
            row = cursor.fetchone()
            assert row is not None
            assert abs(int(row[1]) - wanted) <= 1


def test_locking_reads_and_changes_keep_their_locks(server: Server, database: str) -> None:
    """A locking read locks the same rows, whether entries could decide its condition or not."""
    server.query(
        f"CREATE TABLE {database}.t (id INT PRIMARY KEY, a INT, b INT, v INT, KEY (a, b)) "
        f"ENGINE={ENGINE}"
    )
    server.query(f"INSERT INTO {database}.t SELECT seq, 1, seq, seq FROM seq_1_to_9")
    with server.connect(database) as one, server.connect(database) as two:
        first, second = one.cursor(), two.cursor()
        first.execute("BEGIN")
        first.execute("SELECT v FROM t FORCE INDEX (a) WHERE a = 1 AND b % 5 = 0 FOR UPDATE")
        assert first.fetchall() == ((5,),)
        first.execute("SHOW SESSION STATUS LIKE 'Handler_icp_attempts'")
        if IS_FIRN:
            assert first.fetchone() == ("Handler_icp_attempts", "0")
        second.execute("BEGIN")
        with pytest.raises(pymysql.MySQLError) as refused:
            second.execute("SELECT v FROM t WHERE id = 5 FOR UPDATE NOWAIT")
        assert refused.value.args[0] == 1205
        second.execute("ROLLBACK")
        first.execute("UPDATE t SET v = 0 WHERE a = 1 AND b % 5 = 0")
        assert first.rowcount == 1
        first.execute("ROLLBACK")


@pytest.mark.parametrize(
    "definition",
    ["TEMPORARY TABLE t", "TABLE t"],
)
def test_tables_without_conditions_on_entries(
    server: Server, database: str, definition: str
) -> None:
    partitions = "" if "TEMPORARY" in definition else "PARTITION BY HASH (id) PARTITIONS 3"
    with server.connect(database) as connection, connection.cursor() as cursor:
        cursor.execute(
            f"CREATE {definition} (id INT PRIMARY KEY, a INT, b INT, v INT, KEY (a, b)) "
            f"ENGINE={ENGINE} {partitions}"
        )
        cursor.execute("INSERT INTO t SELECT seq, seq % 3, seq, seq FROM seq_1_to_99")
        cursor.execute("SELECT SUM(v) FROM t FORCE INDEX (a) WHERE a = 1 AND b % 5 = 0")
        assert cursor.fetchone() == (sum(n for n in range(1, 100) if n % 15 == 10),)
        if IS_FIRN:
            assert _counters(connection)["Handler_icp_attempts"] == 0


def test_a_kill_ends_a_scan_that_finds_nothing(server: Server, database: str) -> None:
    server.query(
        f"CREATE TABLE {database}.t (id INT PRIMARY KEY, a INT, b INT, v INT, KEY (a, b)) "
        f"ENGINE={ENGINE} SELECT seq id, 1 a, seq b, 1 v FROM seq_1_to_3000"
    )
    with server.connect(database) as connection:
        killed: list[Any] = []

        def scan() -> None:
            with connection.cursor() as cursor:
                try:
                    # Each comparison takes a tenth of a second: five minutes in all.
                    cursor.execute(
                        "SELECT v FROM t FORCE INDEX (a) WHERE a = 1 AND BENCHMARK(4000000, b) = 7"
                    )
                except pymysql.MySQLError as error:
                    killed.append(error.args[0])

        thread = threading.Thread(target=scan)
        thread.start()
        # After two seconds the statement compares rows: its planning takes much less.
        deadline = time.monotonic() + 60
        while not server.query(
            "SELECT 1 FROM information_schema.processlist "
            f"WHERE id = {connection.thread_id()} AND info LIKE 'SELECT v%%' AND time_ms > 2000"
        ):
            assert time.monotonic() < deadline, killed
            time.sleep(0.05)
        server.query(f"KILL QUERY {connection.thread_id()}")
        thread.join(60)
        assert not thread.is_alive()
        assert killed == [1317]
        if IS_FIRN:
            assert 0 < _counters(connection)["Handler_icp_attempts"] < 3000


@pytest.mark.parametrize("order", ["", "ORDER BY v"])
def test_a_limit_on_examined_rows_ends_a_scan_that_finds_nothing(
    server: Server, database: str, order: str
) -> None:
    examined, warnings, answers = [], [], []
    for name, engine in (("f", ENGINE), ("i", "InnoDB")):
        server.query(
            f"CREATE TABLE {database}.{name} (id INT PRIMARY KEY, a INT, b INT, v INT, KEY (a, b)) "
            f"ENGINE={engine} SELECT seq id, 1 a, seq b, 1 v FROM seq_1_to_5000"
        )
        with server.connect(database) as connection, connection.cursor() as cursor:
            statement = (
                f"SELECT v FROM {name} FORCE INDEX (a) WHERE a = 1 AND b = -b - 1 {order} "
                "LIMIT ROWS EXAMINED 100"
            )
            answers.append(_answer(connection, statement))
            cursor.execute("SHOW WARNINGS")
            warnings.append([row[1] for row in cursor.fetchall()])
            examined.append(_counters(connection)["Handler_icp_attempts"])
    # A sort that is aborted is an error.
    assert answers[0] == answers[1]
    assert warnings[0] == warnings[1]
    assert 1931 in warnings[0]
    assert 0 < examined[0] < 300
    assert abs(examined[0] - examined[1]) <= 2


def test_a_condition_that_writes_to_a_sequence(server: Server, database: str) -> None:
    """Each call of NEXTVAL writes in a transaction of its own, within the scan of the table."""
    server.query(f"CREATE SEQUENCE {database}.s CACHE 1 ENGINE={ENGINE}")
    server.query(
        f"CREATE TABLE {database}.t (id INT PRIMARY KEY, a INT, b INT, v INT, KEY (a, b)) "
        f"ENGINE={ENGINE} SELECT seq id, 1 a, seq b, seq v FROM seq_1_to_300"
    )
    with server.connect(database) as connection, connection.cursor() as cursor:
        cursor.execute("SELECT v FROM t FORCE INDEX (a) WHERE a = 1 AND NEXTVAL(s) = b + 0")
        assert [row[0] for row in cursor.fetchall()] == list(range(1, 301))
        cursor.execute("SELECT NEXTVAL(s)")
        assert cursor.fetchone() == (301,)


def test_prepared_statements_and_locked_tables(server: Server, database: str) -> None:
    server.query(
        f"CREATE TABLE {database}.t (id INT PRIMARY KEY, a INT, b BIT(3), e SET('x', 'y'), v INT, "
        f"KEY (a, b, e)) ENGINE={ENGINE} "
        "SELECT seq id, seq % 3 a, seq % 8 b, seq % 4 e, seq v FROM seq_1_to_96"
    )
    with server.connect(database) as connection, connection.cursor() as cursor:
        cursor.execute(
            "PREPARE p FROM "
            "'SELECT SUM(v) FROM t FORCE INDEX (a) WHERE a = ? AND b + 0 = ? AND e = ?'"
        )

        def executed(bits: int) -> Any:
            cursor.execute("SET @a = 1, @b = %s, @e = 'x'", (bits,))
            cursor.execute("EXECUTE p USING @a, @b, @e")
            row = cursor.fetchone()
            assert row is not None
            return row[0]

        def expected(bits: int) -> int | None:
            rows = [n for n in range(1, 97) if (n % 3, n % 8, n % 4) == (1, bits, 1)]
            return sum(rows) if rows else None

        for bits in (1, 5, 2, 1):
            assert executed(bits) == expected(bits)
        asked = _counters(connection)["Handler_icp_attempts"]
        assert asked > 0
        cursor.execute("LOCK TABLES t READ")
        assert executed(5) == expected(5)
        cursor.execute("UNLOCK TABLES")
        assert _counters(connection)["Handler_icp_attempts"] > asked or not IS_FIRN
