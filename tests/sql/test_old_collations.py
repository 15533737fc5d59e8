"""Indexes over collations whose sort keys the server does not compare by, beside InnoDB's.

The sort keys (strnxfrm) of these collations order text differently from their comparison
(strnncollsp): strokes and codes in Big5, passes over the text in Czech, spaces at the end in Thai.
InnoDB asks the comparison. So every statement here names the index that it reads, and both engines
must give the same rows in the same order. A sort by the server would use its sort keys, and thus
give another order than an index, on any engine.
"""

from __future__ import annotations

from collections.abc import Iterator
from random import Random
from typing import Any

import pymysql
import pytest
from server import ENGINE, IS_FIRN, Server

ENGINES = ("InnoDB", ENGINE)

# Strings of which random ones are made: contractions, accents, ignored characters, tones and
# vowels that change places, characters below a space, spaces.
CZECH = [b"c", b"h", b"ch", b"Ch", b"CH", b"cH", b"C", b"H", b"i", b"I", b"a", b"A", b"d", b"0",
         b" ", b"  ", b"\t", b"!", b"-", b"\0", b"\x01", b"\x7f"]  # fmt: skip
WORDS = {
    "latin2_czech_cs": [*CZECH, b"\xe1", b"\xc1", b"\xe8", b"\xc8", b"\xb9", b"\xd7", b"\xff"],
    "cp1250_czech_cs": [*CZECH, b"\xe1", b"\xc1", b"\xe8", b"\xc8", b"\x9a", b"\xa0", b"\xff"],
    "big5_chinese_ci": [b"a", b"A", b"b", b"~", b"0", b" ", b"  ", b"\t", b"\0", b"\x01",
                        b"\xa4\x40", b"\xa4\xc0", b"\xa8\xc6", b"\xb0\xea", b"\xf9\xd5",
                        b"\xa1\x40", b"\xc6\x7e", b"\xa4\x41", b"\xf7\x48"],
    "tis620_thai_ci": [b"\xa1", b"\xa2", b"\xcb", b"\xe0", b"\xe4", b"\xe8", b"\xe9", b"\xec",
                       b"\xe7", b"\xd2", b"\xda", b"\xf0", b"a", b"A", b"1", b" ", b"  ", b"\t",
                       b"\0", b"\x01", b"\xff"],
}  # fmt: skip
WORDS["big5_chinese_nopad_ci"] = WORDS["big5_chinese_ci"]
WORDS["tis620_thai_nopad_ci"] = WORDS["tis620_thai_ci"]
OLD_COLLATIONS = sorted(WORDS)


@pytest.fixture(autouse=True)
def firn() -> None:
    """Skips the tests for InnoDB, which would be compared with itself."""
    if not IS_FIRN:
        pytest.skip("compares FIRN with InnoDB")


class Pair:
    """Runs the same statements on tables of either engine; `{}` is the engine's name."""

    def __init__(self, session: pymysql.Connection[Any], collation: str, seed: int) -> None:
        self.session = session
        self.charset = collation.split("_", 1)[0]
        self.words = WORDS[collation]
        self.random = Random(f"{seed} {collation}")
        self.of_text = f"CHARACTER SET {self.charset} COLLATE {collation}"

    def text(self, chars_max: int = 8) -> str:
        """A literal of a random string; many are equal or nearly equal."""
        words = [self.random.choice(self.words) for _ in range(self.random.randrange(chars_max))]
        while len(b"".join(words)) > chars_max:
            words.pop()
        return f"_{self.charset} x'{b''.join(words).hex()}'"

    def texts(self, count: int, columns: int) -> str:
        rows = (", ".join(self.text() for _ in range(columns)) for _ in range(count))
        return ", ".join(f"({row})" for row in rows)

    def run(self, sql: str) -> tuple[list[tuple[Any, ...]], int]:
        """Runs the statement for both engines; returns FIRN's rows and number of changed rows."""
        results = []
        for engine in ENGINES:
            with self.session.cursor() as cursor:
                try:
                    changed = cursor.execute(sql.replace("{}", engine))
                    results.append((list(cursor.fetchall()), changed))
                except pymysql.err.MySQLError as error:
                    results.append(([(error.args[0],)], -1))
        assert results[0] == results[1], sql
        return results[1]

    def plans(self, sql: str) -> list[str]:
        """How the server reads the rows of either engine."""
        plans = []
        for engine in ENGINES:
            with self.session.cursor() as cursor:
                cursor.execute("EXPLAIN " + sql.replace("{}", engine))
                plans.append(str(cursor.fetchall()))
        return plans

    def rows(self, sql: str) -> list[tuple[Any, ...]]:
        """FIRN's rows, of a statement that must not fail."""
        rows, changed = self.run(sql)
        assert changed >= 0, (sql, rows)
        return rows


@pytest.fixture(params=OLD_COLLATIONS)
def pair(
    request: pytest.FixtureRequest, server: Server, database: str, seed: int
) -> Iterator[Pair]:
    """A session for the statements of one collation."""
    session = server.connect(database)
    with session.cursor() as cursor:
        cursor.execute("SET sql_mode = ''")
    yield Pair(session, request.param, seed)
    session.close()


def test_reads_by_index_are_those_of_innodb(pair: Pair) -> None:
    of = pair.of_text
    pair.rows(
        f"CREATE TABLE t_{{}} (id INT PRIMARY KEY, v VARCHAR(12) {of}, c CHAR(8) {of}, "
        f"d VARCHAR(12) {of}, x TEXT {of}, KEY v (v), KEY c (c), KEY p (v(2)), "
        "KEY d (d DESC, c), KEY x (x(3))) ENGINE={}"
    )
    rows = ", ".join(f"({i}, {pair.texts(1, 4)[1:-1]})" for i in range(400))
    pair.rows(f"INSERT INTO t_{{}} VALUES {rows}")
    table = "FROM t_{} FORCE INDEX"
    for sql in (
        f"SELECT id, HEX(v) {table} (v) ORDER BY v",
        f"SELECT id, HEX(v) {table} (v) ORDER BY v DESC",
        f"SELECT id, HEX(x) {table} (v) ORDER BY v",
        f"SELECT id, HEX(c) {table} (c) ORDER BY c",
        f"SELECT id, HEX(d), HEX(c) {table} (d) ORDER BY d DESC, c",
        f"SELECT id, HEX(d), HEX(c) {table} (d) ORDER BY d, c DESC",
    ):
        assert not any("filesort" in plan for plan in pair.plans(sql))
        assert len(pair.rows(sql)) == 400
    groups = len(pair.rows(f"SELECT COUNT(*), MIN(id) {table} (v) GROUP BY v"))
    assert 50 < groups < 400
    pair.rows(f"SELECT COUNT(DISTINCT v) {table} (v)")
    found = 0
    for _ in range(25):
        low, high = pair.text(), pair.text()
        for column, index in (("v", "v"), ("v", "p"), ("c", "c"), ("d", "d"), ("x", "x")):
            key = f"SELECT id, HEX({column}) {table} ({index}) WHERE {column}"
            for test in (f"= {low}", f"< {low}", f">= {low}", f"BETWEEN {low} AND {high}"):
                found += len(pair.rows(f"{key} {test}"))
    assert found > 10000
    for column, index in (("v", "v"), ("c", "c"), ("d", "d"), ("v", "p"), ("x", "x")):
        joined = pair.rows(
            f"SELECT a.id, b.id FROM t_{{}} a STRAIGHT_JOIN t_{{}} b FORCE INDEX ({index}) "
            f"ON b.{column} = a.{column} ORDER BY 1, 2"
        )
        assert len(joined) > 400


UNIQUE = {
    "primary": "v VARCHAR(12) {of}, n INT, PRIMARY KEY (v)",
    "varchar": "v VARCHAR(12) {of} NOT NULL, n INT, UNIQUE (v)",
    "char": "v CHAR(8) {of}, n INT, UNIQUE (v)",
    "char primary": "v CHAR(8) {of}, n INT, PRIMARY KEY (v), KEY (n)",
    "prefix": "v VARCHAR(12) {of}, n INT, UNIQUE (v(2))",
    "char prefix": "v CHAR(8) {of}, n INT, UNIQUE (v(3))",
    "text": "v TEXT {of}, n INT, UNIQUE (v(3))",
    "descending": "v VARCHAR(12) {of}, n INT, PRIMARY KEY (v DESC)",
}
PARTITIONS = {
    "range": "PARTITION BY RANGE COLUMNS (v) (PARTITION a VALUES LESS THAN ('ch'), "
    "PARTITION b VALUES LESS THAN (MAXVALUE))",
    "key": "PARTITION BY KEY (v) PARTITIONS 3",
}


@pytest.mark.parametrize("keys", [*UNIQUE, *PARTITIONS])
def test_unique_keys_are_those_of_innodb(pair: Pair, keys: str) -> None:
    columns = UNIQUE.get(keys, UNIQUE["primary"]).replace("{of}", pair.of_text)
    pair.rows(f"CREATE TABLE t_{{}} ({columns}) ENGINE={{}} {PARTITIONS.get(keys, '')}")
    contents = "SELECT HEX(v), n FROM t_{} ORDER BY 1, 2"
    kept = 0
    for _ in range(12):
        rows = ", ".join(f"({pair.text()}, {pair.random.randrange(9)})" for _ in range(20))
        kept += pair.run(f"INSERT IGNORE INTO t_{{}} VALUES {rows}")[1]
        pair.run(f"INSERT INTO t_{{}} VALUES ({pair.text()}, 1)")
        pair.run(f"REPLACE INTO t_{{}} VALUES ({pair.text()}, 2), ({pair.text()}, 3)")
        pair.run(f"INSERT INTO t_{{}} VALUES ({pair.text()}, 4) ON DUPLICATE KEY UPDATE n = n + 10")
        pair.run(f"UPDATE IGNORE t_{{}} SET v = {pair.text()} WHERE v = {pair.text()}")
        pair.run(f"DELETE FROM t_{{}} WHERE v = {pair.text()}")
        pair.rows(contents)
    assert 20 < kept < 12 * 20


@pytest.mark.parametrize("kinds", [("VARCHAR(12)", "VARCHAR(9)"), ("CHAR(8)", "CHAR(8)")])
def test_foreign_keys_are_those_of_innodb(pair: Pair, kinds: tuple[str, str]) -> None:
    parent, child = (f"v {kind} {pair.of_text}" for kind in kinds)
    pair.rows(f"CREATE TABLE p_{{}} ({parent}, PRIMARY KEY (v)) ENGINE={{}}")
    pair.rows(
        f"CREATE TABLE c_{{}} (id INT AUTO_INCREMENT PRIMARY KEY, {child}, FOREIGN KEY (v) "
        "REFERENCES p_{} (v) ON DELETE CASCADE ON UPDATE SET NULL) ENGINE={}"
    )
    pair.run(f"INSERT IGNORE INTO p_{{}} VALUES {pair.texts(60, 1)}")
    for _ in range(80):
        pair.run(f"INSERT INTO c_{{}} (v) VALUES ({pair.text()})")
    contents = "SELECT COUNT(*), COUNT(v), GROUP_CONCAT(HEX(v) ORDER BY HEX(v)) FROM c_{}"
    before = pair.rows(contents)[0]
    assert 3 < before[0] < 80
    with pair.session.cursor() as cursor:
        # The cascades read the definition of a table that the server does not have open.
        cursor.execute("FLUSH TABLES")
    for _ in range(40):
        pair.run(f"DELETE FROM p_{{}} WHERE v = {pair.text()}")
        pair.run(f"UPDATE IGNORE p_{{}} SET v = {pair.text()} WHERE v = {pair.text()}")
        pair.rows(contents)
    assert pair.rows(contents)[0] != before


@pytest.mark.parametrize("collation", ["latin2_czech_cs", "cp1250_czech_cs"])
def test_a_czech_char_refers_to_a_varchar(
    server: Server, database: str, seed: int, collation: str
) -> None:
    """Spaces at the end of text count nowhere, so both have the same keys."""
    pair = Pair(server.connect(database), collation, seed)
    pair.rows(f"CREATE TABLE p_{{}} (v VARCHAR(12) {pair.of_text} PRIMARY KEY) ENGINE={{}}")
    pair.rows(
        f"CREATE TABLE c_{{}} (v CHAR(8) {pair.of_text}, FOREIGN KEY (v) REFERENCES p_{{}} (v)) "
        "ENGINE={}"
    )
    pair.rows("INSERT INTO p_{} VALUES ('chata '), ('c')")
    assert pair.run("INSERT INTO c_{} VALUES ('chata'), ('c')")[1] == 2
    assert pair.run("INSERT INTO c_{} VALUES ('Chata')")[0] == [(1452,)]
    pair.session.close()
