"""Blobs: InnoDB's answers for values of lengths around the threshold, also after kills."""

from __future__ import annotations

from collections.abc import Callable
from random import Random
from typing import Any

import pymysql
import pytest
from server import ENGINE, IS_FIRN, Server

THRESHOLD = 4096
LENGTHS = [0, 1, 255, 4000, 4095, 4096, 4097, 9000, 16384, 40000, 65535, 300000, 1 << 20]
# By column: the length of its longest value.
COLUMNS = {
    "tb": 255,
    "b": 65535,
    "mb": 1 << 20,
    "lb": 1 << 20,
    "vb": 20000,
    "t": 65535,
    "lt": 1 << 20,
    "v": 10000,
}
TABLE = """CREATE TABLE {name} (id INT PRIMARY KEY, n INT,
    tb TINYBLOB, b BLOB, mb MEDIUMBLOB, lb LONGBLOB,
    vb VARBINARY(20000), t TEXT CHARACTER SET utf8mb4, lt LONGTEXT CHARACTER SET latin1,
    v VARCHAR(10000) CHARACTER SET latin1,
    KEY n (n), KEY t (t(20)), KEY b (b(30))) ENGINE={engine}"""


def _value(rng: Random, column: str) -> bytes | str | None:
    if rng.random() < 0.3:
        return None
    length = min(rng.choice(LENGTHS[: rng.randint(3, len(LENGTHS))]), COLUMNS[column])
    if column in ("t", "lt", "v"):
        words = [f"word{rng.randrange(1000)} " for _ in range(20)]
        return ("".join(words) * (length // 100 + 1))[:length].rstrip()
    if rng.random() < 0.5:
        return rng.randbytes(length)
    return (rng.randbytes(7) * (length // 7 + 1))[:length]


def _tables(server: Server, database: str) -> list[str]:
    names = {"f": ENGINE, "i": "InnoDB"}
    for name, engine in names.items():
        server.query(TABLE.format(name=f"{database}.{name}", engine=engine))
    return list(names)


def _compare(cursor: Any, statement: str) -> None:
    found = []
    for name in ("f", "i"):
        cursor.execute(statement.replace("#", name))
        found.append(cursor.fetchall())
    assert found[0] == found[1], f"{statement} differs"


CHECKS = [
    "SELECT * FROM # ORDER BY id",
    "SELECT id, n FROM # ORDER BY n, id",
    "SELECT id, LENGTH(lb), LENGTH(b), CHAR_LENGTH(t) FROM # ORDER BY id",
    "SELECT id, MD5(lb), LEFT(lt, 10), SUBSTRING(mb, 5000, 20) FROM # ORDER BY id",
    "SELECT id, v FROM # WHERE n BETWEEN 2 AND 5 ORDER BY v, id",
    "SELECT id FROM # WHERE t LIKE 'word1%' ORDER BY id",
    "SELECT id, MD5(b) FROM # WHERE b > 'd' ORDER BY b, id",
    "SELECT COUNT(*), COUNT(lb), SUM(LENGTH(lt)) FROM #",
    "SELECT n, MAX(LENGTH(vb)), GROUP_CONCAT(id ORDER BY id) FROM # GROUP BY n ORDER BY n",
]


def _statement(rng: Random) -> tuple[str, list[Any]]:
    columns = list(COLUMNS)
    kind = rng.random()
    ident = rng.randrange(40)
    if kind < 0.45:
        names = rng.sample(columns, rng.randint(1, 4))
        values = [_value(rng, name) for name in names]
        marks = ", ".join(["%s"] * (len(names) + 2))
        verb = rng.choice(["REPLACE", "INSERT IGNORE"])
        text = f"{verb} INTO # (id, n, {', '.join(names)}) VALUES ({marks})"
        return text, [ident, rng.randrange(10), *values]
    if kind < 0.6:
        name = rng.choice(columns)
        return f"UPDATE # SET {name} = %s WHERE id = %s", [_value(rng, name), ident]
    if kind < 0.75:
        return "UPDATE # SET n = n + 1 WHERE id BETWEEN %s AND %s", [ident, ident + 5]
    if kind < 0.85:
        return "UPDATE IGNORE # SET id = %s WHERE id = %s", [rng.randrange(60), ident]
    if kind < 0.9:
        text = "INSERT INTO # (id, n, lb) VALUES (%s, 1, %s) ON DUPLICATE KEY UPDATE n = 9, mb = lb"
        return text, [ident, _value(rng, "lb")]
    return "DELETE FROM # WHERE id = %s", [ident]


def _both(cursor: Any, statement: str, arguments: list[Any]) -> None:
    for name in ("f", "i"):
        cursor.execute(statement.replace("#", name), arguments)


def test_rows_with_blobs_are_those_of_innodb(server: Server, database: str, seed: int) -> None:
    rng = Random(seed)
    _tables(server, database)
    with server.connect(database, autocommit=False) as connection:
        cursor = connection.cursor()
        cursor.execute("SET sql_mode = ''")
        for step in range(120):
            _both(cursor, *_statement(rng))
            if rng.random() < 0.15:
                cursor.execute("SAVEPOINT s")
                for _ in range(3):
                    _both(cursor, *_statement(rng))
                cursor.execute("ROLLBACK TO SAVEPOINT s")
            if rng.random() < 0.3:
                (connection.rollback if rng.random() < 0.3 else connection.commit)()
            if step % 20 == 19:
                for check in CHECKS:
                    _compare(cursor, check)
        connection.commit()
        cursor.execute("CHECK TABLE f EXTENDED")
        assert cursor.fetchall()[-1][-1] == "OK"
        for statement in (
            "ALTER TABLE # ADD COLUMN x INT DEFAULT 3, ALGORITHM=COPY",
            "ALTER TABLE # MODIFY t LONGTEXT CHARACTER SET utf8mb4",
        ):
            _both(cursor, statement, [])
            for check in CHECKS:
                _compare(cursor, check)


@pytest.mark.skipif(not IS_FIRN, reason="about the files of FIRN")
def test_values_are_written_once_and_read_when_wanted(server: Server, database: str) -> None:
    server.query(f"CREATE TABLE {database}.t (id INT PRIMARY KEY, n INT, b LONGBLOB) ENGINE=FIRN")

    def counter(name: str) -> int:
        return int(server.query(f"SHOW GLOBAL STATUS LIKE 'Firn_{name}'")[0][1])

    written = counter("blobs_written")
    value = Random(5).randbytes(200000)
    server.query(f"INSERT INTO {database}.t VALUES (1, 1, %s), (2, 2, %s)", (value, b"x" * 4095))
    assert counter("blobs_written") == written + 1
    for number in range(5):
        server.query(f"UPDATE {database}.t SET n = {number + 5} WHERE id = 1")
    assert counter("blobs_written") == written + 1
    read = counter("blobs_read")
    assert server.query(f"SELECT SUM(n) FROM {database}.t") == ((11,),)
    assert counter("blobs_read") == read
    assert server.query(f"SELECT b FROM {database}.t WHERE id = 1") == ((value,),)
    assert counter("blobs_read") == read + 1
    assert counter("blob_bytes_live") >= 200000


def test_a_kill_keeps_acknowledged_blobs(own_server: Callable[..., Server], seed: int) -> None:
    rng = Random(seed)
    server = own_server("--loose-firn-memtable-size=1048576")
    server.query("CREATE DATABASE d")
    server.query(f"CREATE TABLE d.t (id INT PRIMARY KEY, n INT, b LONGBLOB) ENGINE={ENGINE}")
    rows: dict[int, bytes] = {}
    for _ in range(3):
        with server.connect("d") as connection:
            cursor = connection.cursor()
            for _ in range(60):
                ident = rng.randrange(30)
                value = rng.randbytes(rng.choice([100, 5000, 50000, 300000]))
                cursor.execute("REPLACE INTO t VALUES (%s, 1, %s)", (ident, value))
                connection.commit()
                rows[ident] = value
            cursor.execute("BEGIN")
            cursor.execute("UPDATE t SET b = REPEAT('lost', 20000)")
        server.kill()
        server.start()
        assert dict(server.query("SELECT id, b FROM d.t")) == rows
        assert server.query("CHECK TABLE d.t")[-1][-1] == "OK"
    server.stop()


@pytest.mark.skipif(not IS_FIRN, reason="a variable of FIRN")
def test_the_threshold_changes_for_what_follows(server: Server, database: str) -> None:
    server.query(f"CREATE TABLE {database}.t (id INT PRIMARY KEY, b BLOB) ENGINE=FIRN")
    with pytest.raises(pymysql.Error):
        server.query("SET GLOBAL firn_blob_threshold = 'x'")
    before = server.query("SELECT @@GLOBAL.firn_blob_threshold")[0][0]
    assert before == THRESHOLD
    try:
        for number, threshold in enumerate((60000, 256, 4096)):
            server.query(f"SET GLOBAL firn_blob_threshold = {threshold}")
            for length in (255, 256, 4096, 50000):
                ident = number * 100000 + length
                server.query(
                    f"INSERT INTO {database}.t VALUES ({ident}, REPEAT('ab', {length} / 2))"
                )
        rows = server.query(f"SELECT id, LENGTH(b) FROM {database}.t")
        assert len(rows) == 12
        assert all(abs(length - ident % 100000) <= 1 for ident, length in rows)
    finally:
        server.query(f"SET GLOBAL firn_blob_threshold = {before}")
