"""Statements that need only the length or the prefix of a value out of line.

The answers are those of InnoDB for any form of statement, and the engine reads only the blob parts
that it needs.
"""

from __future__ import annotations

from random import Random
from typing import Any

import pymysql
import pytest
from server import ENGINE, IS_FIRN, Server

TABLE = """CREATE TABLE {name} (id INT PRIMARY KEY, n INT NOT NULL, b LONGBLOB,
    t LONGTEXT CHARACTER SET utf8mb4, l MEDIUMTEXT CHARACTER SET latin1 NOT NULL,
    v VARCHAR(12000) CHARACTER SET latin1, u VARCHAR(5000) CHARACTER SET utf8mb4,
    KEY n (n), KEY b (b(30)), KEY v (v(20))) ENGINE={engine}"""
BINARY = ["b"]
LARGE = ["b", "t", "l", "v", "u"]
ROWS = 30
CHUNK = 131072
LENGTHS = [0, 1, 90, 4000, 4095, 4096, 4097, 5000, 9000, 65536, CHUNK - 1, CHUNK, CHUNK + 1, 300000]


def _text(rng: Random, alphabet: str, size: int) -> str:
    """A text of about `size` bytes, in characters of one to four bytes."""
    width = len(alphabet.encode()) / len(alphabet)
    words = "".join(rng.choice(alphabet) for _ in range(97))
    return (words * (int(size / width) // 97 + 1))[: int(size / width)]


def _value(rng: Random, column: str) -> bytes | str | None:
    if column != "l" and rng.random() < 0.15:
        return None
    size = min(rng.choice(LENGTHS), {"v": 12000, "u": 5000}.get(column, 1 << 20))
    if column in BINARY:
        noise = rng.randbytes(size if rng.random() < 0.5 else 61)
        return (noise * (size // max(1, len(noise)) + 1))[:size]
    alphabet = {"t": "aé€😀 x", "u": "aé€😀 x"}.get(column, "abcdefgh ")
    return _text(rng, alphabet, size)


def _fill(rng: Random, server: Server, database: str) -> None:
    marks = ", ".join(["%s"] * (len(LARGE) + 2))
    for name, engine in (("f", ENGINE), ("i", "InnoDB")):
        server.query(TABLE.format(name=f"{database}.{name}", engine=engine))
    for ident in range(ROWS):
        row = [ident, rng.randrange(6), *(_value(rng, column) for column in LARGE)]
        for name in "fi":
            server.query(f"INSERT INTO {database}.{name} VALUES ({marks})", row)


def _part(rng: Random, column: str) -> str:
    """An expression that needs only a part of the column."""
    place, size = rng.choice([1, 2, 100, 4090, CHUNK]), rng.choice([0, 1, 9, 200, CHUNK, 200000])
    return rng.choice(
        [
            f"LENGTH({column})",
            f"octet_length({column})",
            f"BIT_LENGTH({column})",
            f"LEFT({column}, {size})",
            f"SUBSTRING({column}, {place}, {size})",
            f"Substr({column},{place},{size})",
            f"MID({column} , {place}, {size})",
            f"SUBSTRING({column} FROM {place} FOR {size})",
            f"{column} IS NULL",
            f"{column} IS NOT NULL",
            f"HEX(LEFT({column}, {size}))",
            f"IF({column} IS NULL, -1, LENGTH({column}) * 2)",
            f"CONCAT(LEFT({column}, 10), '|', LENGTH({column}))",
        ]
    )


def _whole(rng: Random, column: str) -> str:
    """An expression that needs the whole value, although some look otherwise."""
    return rng.choice(
        [
            column,
            f"MD5({column})",
            f"CHAR_LENGTH({column})",
            f"RIGHT({column}, 9)",
            f"SUBSTRING({column}, -9, 5)",
            f"SUBSTRING({column}, 3)",
            f"SUBSTRING({column}, n + 1, 5)",
            f"LEFT({column}, n)",
            f"LENGTH(UPPER({column}))",
            f"LENGTH(CONCAT({column}, 'x'))",
            f"LENGTH({column} COLLATE {'binary' if column in BINARY else 'utf8mb4_bin'})"
            if column not in ("l", "v")
            else f"LENGTH(TRIM({column}))",
            f"('x' = {column} IS NULL)",
            f"(n BETWEEN 0 AND {column} IS NULL)",
            f"(NOT {column} IS NULL)",
            f"MD5(CONCAT_WS('/', LENGTH({column}), {column}))",
            f"CRC32({column})",
            f"INSTR({column}, 'c')",
        ]
    )


def _expression(rng: Random) -> str:
    column = rng.choice(LARGE)
    kind = rng.random()
    if kind < 0.65:
        return _part(rng, column)
    return (
        _whole(rng, column) if kind < 0.85 else rng.choice(["id", "n", "n + 1", "'t'", "1.5 * n"])
    )


def _condition(rng: Random) -> str:
    column = rng.choice(LARGE)
    return rng.choice(
        [
            f"LENGTH({column}) > {rng.choice(LENGTHS)}",
            f"{column} IS NOT NULL",
            f"LEFT({column}, 1) IN ('a', 'b', 'x')",
            f"SUBSTRING({column}, 2, 3) >= 'b'",
            f"{column} LIKE 'a%'",
            f"{column} > 'd'",
            f"{column} = LEFT({column}, 5000)",
            f"n BETWEEN {rng.randrange(3)} AND LENGTH({column})",
            "n = 2",
            "id < 9",
            f"n = 1 OR LENGTH({column}) < 5000 AND {column} IS NOT NULL",
            f"NOT LENGTH({column}) = 4096",
        ]
    )


def _aggregate(rng: Random) -> str:
    column = rng.choice(LARGE)
    return rng.choice(
        [
            "COUNT(*)",
            f"COUNT({column})",
            f"SUM(LENGTH({column}))",
            f"MAX(LENGTH({column}))",
            f"AVG(OCTET_LENGTH({column}))",
            f"MIN(LEFT({column}, 9))",
            f"MAX(SUBSTRING({column}, 2, 4))",
            f"MIN({column})",
            f"COUNT(DISTINCT LENGTH({column}))",
            f"SUM({column} IS NULL)",
            f"GROUP_CONCAT(LENGTH({column}) ORDER BY id)",
            f"MAX(MD5({column}))",
        ]
    )


def _list(rng: Random) -> str:
    chosen = [_expression(rng) for _ in range(rng.randint(1, 4))]
    return ", ".join(
        f"{text} {rng.choice(['', 'AS'])} x{number}" if rng.random() < 0.3 else text
        for number, text in enumerate(chosen)
    )


def _statement(rng: Random) -> str:
    chosen, condition, column = _list(rng), _condition(rng), rng.choice(LARGE)
    part = _part(rng, column)
    where = rng.choice(["", f" WHERE {condition}", f" WHERE {condition} AND {_condition(rng)}"])
    order = rng.choice(["id", "n, id", "q.id DESC"])
    plain = [
        f"SELECT {chosen} FROM #{where}",
        f"SELECT {chosen} FROM #{where}",
        f"SELECT {chosen} FROM # WHERE id = {rng.randrange(ROWS + 2)}",
        f"SELECT {chosen} FROM # AS q{where} ORDER BY {order} LIMIT 7",
        f"SELECT {chosen} FROM # FORCE INDEX (n) WHERE n > 2 AND {condition}",
        f"SELECT {', '.join(_aggregate(rng) for _ in range(3))} FROM #{where}",
        f"SELECT #.{column}, LENGTH(#.{column}), `id` FROM #{where}",
    ]
    others = [
        f"SELECT DISTINCT {chosen} FROM #{where}",
        f"SELECT SQL_BUFFER_RESULT {chosen} FROM #{where}",
        f"SELECT {chosen} FROM #{where} ORDER BY {_expression(rng)}, id",
        f"SELECT {part} x, COUNT(*) FROM # GROUP BY x",
        f"SELECT {column} FROM # GROUP BY {column} HAVING LENGTH({column}) > 1",
        f"SELECT MAX({column}), {part} FROM # GROUP BY {part}",
        f"SELECT LENGTH({column}) FROM # GROUP BY {column}",
        f"SELECT n, MAX({part}) FROM #{where} GROUP BY n WITH ROLLUP",
        f"SELECT id, {part} z FROM # HAVING z IS NOT NULL",
        f"SELECT MAX(id), {part} FROM # WHERE id = 3",
        f"SELECT MAX(id) + LENGTH({column}) FROM # WHERE id = 3",
        f"SELECT {chosen} FROM #_view{where}",
        f"SELECT LENGTH({column}) FROM #_filter",
        f"SELECT {part} FROM (SELECT * FROM # WHERE {condition}) d",
        f"SELECT x FROM (SELECT {part} x, {column} FROM #) d WHERE LENGTH({column}) > 3",
        f"WITH c AS (SELECT id, {column} FROM #) SELECT {part} FROM c WHERE id > 3",
        f"SELECT {part} FROM # UNION ALL SELECT {_part(rng, column)} FROM #",
        f"SELECT {part} FROM # UNION SELECT {column} FROM #",
        f"SELECT id, (SELECT {part} FROM # k WHERE k.id = #.n) FROM #",
        f"SELECT id FROM # WHERE LENGTH({column}) IN (SELECT LENGTH({column}) FROM # k)",
        f"SELECT id FROM # WHERE EXISTS (SELECT 1 FROM # k WHERE k.{column} = #.{column})",
        f"SELECT q.id, LENGTH(q.{column}), LEFT(r.{column}, 9) FROM # q JOIN # r ON q.n = r.id",
        f"SELECT q.id, LENGTH(r.{column}) FROM # q LEFT JOIN # r ON r.{column} = q.{column}",
        f"SELECT id, {part}, ROW_NUMBER() OVER (ORDER BY LENGTH({column}), id) FROM #",
        f"SELECT id, SUM(LENGTH({column})) OVER (PARTITION BY n) FROM #",
        f"SELECT id, {part} FROM # WHERE id > 4 FOR UPDATE",
        f"SELECT id, {part} FROM # WHERE id > 4 LOCK IN SHARE MODE",
        f"SELECT @x := {column}, LENGTH({column}) FROM # WHERE id = 2",
        f"SELECT full_length({column}), LENGTH({column}) FROM #",
        f"SELECT LENGTH({column}) FROM # WHERE id = full_length('ab')",
        f"SELECT {part}, DEFAULT({column}) FROM # WHERE n IN (1, 2)",
        f"SELECT /* {column} */ {part} FROM #",
        f"SELECT CASE WHEN {condition} THEN {part} ELSE {column} END FROM #",
        f"SELECT b, LENGTH(b) FROM # WHERE b IN ('x', LEFT(b, 3)) OR ({condition})",
    ]
    return rng.choice(plain if rng.random() < 0.5 else others)


def _rows(cursor: Any, statement: str) -> Any:
    """The sorted rows, or the error; the statements do not define an order."""
    try:
        cursor.execute(statement)
        return sorted(cursor.fetchall(), key=repr)
    except pymysql.err.Error as error:
        return error.args[0]


def _same(cursor: Any, statement: str) -> Any:
    found = [_rows(cursor, statement.replace("#", name)) for name in "fi"]
    assert found[0] == found[1], f"{statement} differs"
    return found[0]


def _prepared(rng: Random, cursor: Any, statement: str) -> None:
    """Prepares the statement in one SQL mode and executes it twice in another one."""
    modes = ["", "ORACLE", "ANSI_QUOTES", "HIGH_NOT_PRECEDENCE", "IGNORE_SPACE"]
    prepared, executed = rng.choice(modes), rng.choice(modes)
    answers = []
    for name in "fi":
        cursor.execute(f"SET sql_mode = '{prepared}'")
        try:
            cursor.execute("PREPARE s FROM %s", (statement.replace("#", name),))
        except pymysql.err.Error as error:
            answers.append(error.args[0])
            continue
        finally:
            cursor.execute(f"SET sql_mode = '{executed}'")
        answers.append([_rows(cursor, "EXECUTE s") for _ in range(2)])
    cursor.execute("SET sql_mode = ''")
    assert answers[0] == answers[1], f"{statement} differs, prepared as {prepared!r}"


def _in_a_procedure(cursor: Any, statement: str) -> None:
    answers = []
    for name in "fi":
        try:
            cursor.execute(f"CREATE OR REPLACE PROCEDURE p() {statement.replace('#', name)}")
        except pymysql.err.Error as error:
            answers.append(error.args[0])
            continue
        answers.append([_rows(cursor, "CALL p()") for _ in range(2)])
    assert answers[0] == answers[1], f"{statement} differs in a procedure"


def test_every_shape_answers_as_innodb_does(server: Server, database: str, seed: int) -> None:
    rng = Random(seed)
    _fill(rng, server, database)
    with server.connect(database) as connection:
        cursor = connection.cursor()
        for name in "fi":
            cursor.execute(f"CREATE VIEW {name}_view AS SELECT * FROM {name}")
            condition = "b LIKE '%x%' OR t LIKE '%x%'"
            cursor.execute(f"CREATE VIEW {name}_filter AS SELECT * FROM {name} WHERE {condition}")
        cursor.execute("CREATE FUNCTION full_length(x LONGBLOB) RETURNS INT RETURN LENGTH(x)")
        cursor.execute("SET sql_mode = ''")
        answered = 0
        for number in range(400):
            statement = _statement(rng)
            if number % 8 == 6:
                _prepared(rng, cursor, statement)
            elif number % 8 == 7:
                _in_a_procedure(cursor, statement)
            else:
                mode = rng.choice(["", "", "ORACLE", "ANSI_QUOTES", "HIGH_NOT_PRECEDENCE"])
                cursor.execute(f"SET sql_mode = '{mode}'")
                answered += isinstance(_same(cursor, statement), list)
                cursor.execute("SET sql_mode = ''")
        assert answered > 200
        # These changes need some old values whole and of others only the length. Both engines must
        # end with the same rows.
        for statement in (
            "UPDATE # SET b = LEFT(b, 5000), n = LENGTH(t) WHERE id < 9",
            "DELETE FROM # WHERE LENGTH(l) = 4096",
            "INSERT INTO # SELECT id + 100, LENGTH(b), b, t, l, v, u FROM # WHERE LENGTH(b) > 4000",
        ):
            for name in "fi":
                cursor.execute(statement.replace("#", name))
            _same(cursor, "SELECT * FROM #")


def test_a_text_that_names_a_view_or_another_schema(server: Server, database: str) -> None:
    """The text names the table, but the statement reads another object with that name."""
    other = f"{database}_other"
    for name in (database, other):
        server.query(f"DROP DATABASE IF EXISTS {name}")
        server.query(f"CREATE DATABASE {name}")
    try:
        server.query(f"CREATE TABLE {other}.t (id INT PRIMARY KEY, b LONGBLOB) ENGINE={ENGINE}")
        rows = [(1, b"a" * 50000 + b"needle"), (2, b"b" * 60000)]
        for row in rows:
            server.query(f"INSERT INTO {other}.t VALUES (%s, %s)", row)
        view = f"SELECT * FROM {other}.t WHERE b LIKE '%needle'"
        server.query(f"CREATE VIEW {database}.t AS {view}")
        function = (
            "RETURNS INT READS SQL DATA RETURN (SELECT COUNT(*) FROM t WHERE b LIKE '%needle')"
        )
        server.query(f"CREATE FUNCTION {other}.needles() {function}")
        server.query(f"CREATE VIEW {database}.u AS SELECT {other}.needles() AS n, 1 AS b")
        with server.connect(database) as connection:
            cursor = connection.cursor()
            text = "SELECT LENGTH(b) FROM t"
            assert _rows(cursor, text) == [(50006,)]
            cursor.execute("PREPARE s FROM %s", (text,))
            cursor.execute(f"USE {other}")
            assert _rows(cursor, "EXECUTE s") == [(50006,)]
            assert _rows(cursor, text) == [(50006,), (60000,)]
            assert _rows(cursor, f"SELECT LENGTH(b) FROM {database}.t") == [(50006,)]
            assert _rows(cursor, f"SELECT n, LENGTH(b) FROM {database}.u") == [(1, 1)]
            cursor.execute(f"USE {database}")
            cursor.execute(f"RENAME TABLE {database}.u TO {database}.w")
            assert _rows(cursor, "SELECT n, LENGTH(b) FROM w") == [(1, 1)]
            cursor.execute("CREATE TEMPORARY TABLE t (b TEXT) ENGINE=InnoDB")
            assert _rows(cursor, text) == []
            hidden = "ALTER TABLE {0}.t ADD c INT AS (LENGTH(TRIM('x' FROM b))) VIRTUAL"
            cursor.execute(hidden.format(other))
            cursor.execute(f"USE {other}")
            assert _rows(cursor, "SELECT c, LENGTH(b) FROM t") == [(50006, 50006), (60000, 60000)]
    finally:
        server.query(f"DROP DATABASE {other}")


@pytest.mark.parametrize("locked", [False, True])
def test_each_statement_of_a_connection_has_its_own_needs(
    server: Server, database: str, locked: bool
) -> None:
    """The handler stays the same, and remembers what the text of one statement needs."""
    b = "x" * 50000
    server.query(f"CREATE TABLE {database}.t (id INT PRIMARY KEY, b LONGTEXT) ENGINE={ENGINE}")
    server.query(f"INSERT INTO {database}.t VALUES (1, %s), (2, %s)", (b, b))
    multi = pymysql.constants.CLIENT.MULTI_STATEMENTS
    with server.connect(database, client_flag=multi) as connection:
        cursor = connection.cursor()
        cursor.execute("CREATE PROCEDURE whole() SELECT b FROM t WHERE id = 1")
        cursor.execute(
            "CREATE FUNCTION digest(x INT) RETURNS CHAR(32) READS SQL DATA "
            "RETURN (SELECT MD5(b) FROM t WHERE id = x)"
        )
        cursor.execute("SELECT MD5(%s)", (b,))
        digest = cursor.fetchall()[0][0]
        if locked:
            cursor.execute("LOCK TABLES t READ")
        length, whole, left = [((50000,),), ((b,),), (("xxx",),)]
        select = "SELECT {} FROM t WHERE id = 1"
        cursor.execute("PREPARE s FROM %s", (select.format("b"),))
        packet = [("LENGTH(b)", length), ("b", whole), ("LEFT(b, 3)", left), ("b", whole)]
        for _ in range(2):
            cursor.execute("; ".join(select.format(what) for what, _ in packet))
            for number, (_, answer) in enumerate(packet):
                assert number == 0 or cursor.nextset()
                assert cursor.fetchall() == answer
            calls = ["EXECUTE s", f"EXECUTE IMMEDIATE '{select.format('b')}'"]
            if not locked:
                calls.append("CALL whole()")
            for call in calls:
                cursor.execute(select.format("LENGTH(b)"))
                assert cursor.fetchall() == length
                cursor.execute(call)
                assert cursor.fetchall() == whole
                while cursor.nextset():
                    pass
            if locked:
                continue
            for inner in ("digest(id)", "(SELECT MD5(b) FROM t k WHERE k.id = t.id)"):
                cursor.execute(f"SELECT LENGTH(b), {inner} FROM t")
                assert cursor.fetchall() == ((50000, digest), (50000, digest))
        cursor.execute("UNLOCK TABLES")
        cursor.execute("ALTER TABLE t ADD c LONGTEXT FIRST")
        for what, answer in packet:
            cursor.execute(select.format(what))
            assert cursor.fetchall() == answer


def _counters(server: Server) -> tuple[int, int]:
    rows = server.query("SHOW GLOBAL STATUS LIKE 'Firn_blob%'")
    values = {name: int(value) for name, value in rows}
    return values["Firn_blobs_read"], values["Firn_blob_bytes_read"]


# A statement, the number of blobs that it reads per row, and a limit on the bytes that it reads.
READS = [
    ("SELECT LENGTH(b) FROM t", 0, 0),
    ("SELECT id, OCTET_LENGTH(b) x, BIT_LENGTH(t) FROM t WHERE LENGTH(b) > 5 ORDER BY id", 0, 0),
    ("SELECT SUM(LENGTH(b)), COUNT(t), MAX(LENGTH(v)) FROM t", 0, 0),
    ("SELECT id FROM t WHERE b IS NOT NULL AND t IS NOT NULL", 0, 0),
    ("SELECT id FROM t WHERE b iS nOt NuLl", 0, 0),
    ("SELECT id FROM t WHERE b\nIS\tNOT NULL", 0, 0),
    ("SELECT LENGTH(t) FROM t WHERE id = 1", 0, 0),
    ("SELECT SUBSTRING(b, 1, 100) FROM t", 1, CHUNK + 12 * 8),
    ("SELECT LEFT(b, 100), LENGTH(b) FROM t q WHERE id = 1 LIMIT 1", 1, CHUNK + 12 * 8),
    ("SELECT SUBSTRING(b FROM 131073 FOR 9) FROM t", 1, 2 * CHUNK + 12 * 8),
    ("SELECT LEFT(t, 10) FROM t", 1, CHUNK + 12 * 8),
    ("SELECT LENGTH(b), MD5(t) FROM t", 1, 200000),
    ("SELECT b FROM t GROUP BY b HAVING LENGTH(b) > 1", 1, 1 << 21),
    ("SELECT LENGTH(b) FROM t GROUP BY b", 1, 1 << 21),
]


# Statements on a table whose columns have the names of clauses, and the number of blobs read.
WORDS = [
    ("SELECT LENGTH(b) FROM w WHERE `group` = 1", 0),
    ("SELECT LENGTH(b), `having` FROM w WHERE w.`by` = 1 ORDER BY `distinct`", 0),
    ("SELECT LENGTH(b) FROM w WHERE id = 1 GROUP BY id", 1),
    ("SELECT LENGTH(b), `having` FROM w WHERE id = 1 HAVING `having` = 1", 1),
    ("SELECT DISTINCT LENGTH(b) FROM w", 1),
    ("SELECT COUNT(DISTINCT id), SUM(LENGTH(b)) FROM w", 1),
    # In the SQL mode ANSI_QUOTES, the text in double quotes could be the name of a column.
    ('SELECT "é", LENGTH(b) FROM w', 1),
    ("SELECT 'é', LENGTH(b) FROM w", 0),
]


@pytest.mark.skipif(not IS_FIRN, reason="about what FIRN reads")
def test_a_clause_is_no_column_of_its_name(server: Server, database: str) -> None:
    words = ", ".join(f"`{word}` INT DEFAULT 1" for word in ("group", "by", "having", "distinct"))
    server.query(f"CREATE TABLE {database}.w (id INT PRIMARY KEY, b LONGBLOB, {words}) ENGINE=FIRN")
    server.query(f"INSERT INTO {database}.w (id, b) VALUES (1, REPEAT('x', 50000))")
    with server.connect(database) as connection:
        cursor = connection.cursor()
        for statement, blobs in WORDS:
            before, _ = _counters(server)
            cursor.execute(statement)
            assert cursor.fetchall()[0][-1] in (1, 50000), statement
            assert _counters(server)[0] - before == blobs, statement


@pytest.mark.skipif(not IS_FIRN, reason="about what FIRN reads")
def test_no_more_is_read_than_is_needed(server: Server, database: str) -> None:
    columns = "id INT PRIMARY KEY, b LONGBLOB, t LONGTEXT, v VARCHAR(9000)"
    server.query(f"CREATE TABLE {database}.t ({columns}) ENGINE=FIRN CHARACTER SET utf8mb4")
    rng = Random(3)
    row = [1, rng.randbytes(1 << 20), _text(rng, "aé€😀", 300000), "v" * 8000]
    server.query(f"INSERT INTO {database}.t VALUES (%s, %s, %s, %s)", row)
    with server.connect(database) as connection:
        cursor = connection.cursor()
        for statement, blobs, most in READS:
            before = _counters(server)
            cursor.execute(statement)
            answer = cursor.fetchall()
            blobs_read, bytes_read = (a - b for a, b in zip(_counters(server), before, strict=True))
            assert blobs_read == blobs, statement
            assert bytes_read <= most, statement
            assert (bytes_read > 0) == (blobs > 0), statement
            assert len(answer) == 1, statement
        cursor.execute(
            "SELECT LENGTH(b), LEFT(b, 5), LENGTH(t), LENGTH(v), LEFT(v, 3), LEFT(t, 9) FROM t"
        )
        assert cursor.fetchall() == (
            (1 << 20, row[1][:5], len(row[2].encode()), 8000, "vvv", row[2][:9]),
        )
