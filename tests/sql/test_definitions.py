"""A definition that differs from the stored one loses no rows: it opens, or is refused."""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pymysql
import pytest
from server import IS_FIRN, REPOSITORY, Server

pytestmark = pytest.mark.skipif(not IS_FIRN, reason="about FIRN's definitions")

TOOL = Path(os.environ.get("FIRN_TEST_TOOL", REPOSITORY / "build" / "bin" / "firn"))
COLUMNS = (
    "id INT NOT NULL AUTO_INCREMENT PRIMARY KEY, v VARCHAR(10), w INT, g INT AS (id + w), KEY (v)"
)


def _run(connection: pymysql.Connection[Any], sql: str) -> tuple[tuple[Any, ...], ...]:
    with connection.cursor() as cursor:
        cursor.execute(sql)
        return cursor.fetchall()


def _error(connection: pymysql.Connection[Any], sql: str) -> tuple[int, str]:
    try:
        _run(connection, sql)
    except pymysql.err.Error as error:
        return error.args[0], error.args[1]
    return 0, ""


def _make(connection: pymysql.Connection[Any], name: str, columns: str = COLUMNS) -> None:
    _run(connection, f"CREATE TABLE {name} ({columns}) ENGINE=FIRN")


def _fill(connection: pymysql.Connection[Any], name: str) -> None:
    _run(connection, f"INSERT INTO {name} (v, w) SELECT LEFT(MD5(seq), 9), seq FROM seq_1_to_200")


def _image(connection: pymysql.Connection[Any], name: str) -> tuple[tuple[Any, ...], ...]:
    return _run(connection, f"SELECT * FROM {name} ORDER BY id")


def _take_definition(connection: pymysql.Connection[Any], server: Server, to: str, of: str) -> None:
    """Copies the definition file of table `of` over that of `to`, behind the server's back."""
    _run(connection, "FLUSH TABLES")
    database = server.data / "definitions"
    shutil.copyfile(database / f"{of}.frm", database / f"{to}.frm")


@pytest.fixture
def started(own_server: Callable[..., Server]) -> Server:
    server = own_server()
    server.query("CREATE DATABASE definitions")
    return server


@pytest.mark.parametrize("algorithm", ["DEFAULT", "COPY", "INPLACE", "NOCOPY", "INSTANT"])
def test_a_column_may_lose_auto_increment(
    server: Server, connection: pymysql.Connection[Any], algorithm: str
) -> None:
    _make(connection, "a")
    _fill(connection, "a")
    rows = _image(connection, "a")
    _run(connection, f"ALTER TABLE a MODIFY id INT NOT NULL, ALGORITHM={algorithm}")
    assert _image(connection, "a") == rows
    assert "AUTO_INCREMENT" not in _run(connection, "SHOW CREATE TABLE a")[0][1]
    assert _error(connection, "INSERT INTO a (v) VALUES ('x')")[0] == 1364
    _run(connection, "INSERT INTO a (id, v) VALUES (900, 'x')")
    _run(connection, "FLUSH TABLES")
    assert len(_image(connection, "a")) == 201
    assert not _run(connection, "SHOW WARNINGS"), "the definitions agree"
    assert _run(connection, "CHECK TABLE a EXTENDED")[0][3] == "OK"
    _run(connection, "ALTER TABLE a MODIFY id INT NOT NULL AUTO_INCREMENT")
    _run(connection, "INSERT INTO a (v) VALUES ('y')")
    assert _run(connection, "SELECT MAX(id) FROM a") == ((901,),)
    _run(connection, "ALTER TABLE a ENGINE=InnoDB")
    assert len(_image(connection, "a")) == 202


def test_partitions_lose_auto_increment(connection: pymysql.Connection[Any]) -> None:
    _run(
        connection,
        "CREATE TABLE p (id INT NOT NULL AUTO_INCREMENT PRIMARY KEY, v INT) ENGINE=FIRN "
        "PARTITION BY HASH (id) PARTITIONS 3",
    )
    _run(connection, "INSERT INTO p (v) SELECT seq FROM seq_1_to_50")
    _run(connection, "ALTER TABLE p MODIFY id INT NOT NULL, COMMENT 'none'")
    _run(connection, "FLUSH TABLES")
    assert _run(connection, "SELECT COUNT(*), SUM(v), MAX(id) FROM p") == ((50, 1275, 50),)
    assert not _run(connection, "SHOW WARNINGS")
    assert _run(connection, "CHECK TABLE p EXTENDED")[0][3] == "OK"


def test_a_harmless_difference_is_a_warning(started: Server) -> None:
    connection = started.connect("definitions")
    _make(connection, "a")
    _fill(connection, "a")
    _make(
        connection,
        "b",
        "id INT NOT NULL PRIMARY KEY, vv VARCHAR(300), w INT, g BIGINT AS (id + w), KEY k (vv)",
    )
    rows = _image(connection, "a")
    _take_definition(connection, started, "a", "b")
    for restarted in (False, True):
        if restarted:
            connection.close()
            started.restart()
            connection = started.connect("definitions")
        assert _image(connection, "a")[:200] == rows
        warning = _run(connection, "SHOW WARNINGS")[0][2]
        assert "table definitions/a: the server's definition" in warning
        assert "AUTO_INCREMENT column: id, not none" in warning
        assert warning in started.log()
        if not restarted:
            _run(connection, "INSERT INTO a (id, vv, w) VALUES (300, REPEAT('long', 70), 1)")
            _run(connection, "UPDATE a SET vv = CONCAT(vv, '!') WHERE id IN (7, 300)")
            rows = _image(connection, "a")[:200]
        assert _run(connection, "SELECT id FROM a WHERE vv LIKE 'long%!'") == ((300,),)
        assert _run(connection, "SELECT g FROM a WHERE id = 300") == ((301,),)
    assert _run(connection, "CHECK TABLE a EXTENDED")[0][3] == "OK"
    image = _image(connection, "a")
    # ALTER TABLE stores the server's definition of the table in the engine, in place and as a copy.
    _run(connection, "ALTER TABLE a DROP INDEX k, ALGORITHM=INPLACE")
    _run(connection, "FLUSH TABLES")
    assert _image(connection, "a") == image
    assert not _run(connection, "SHOW WARNINGS")
    _run(connection, "ALTER TABLE a FORCE")
    assert _image(connection, "a") == image
    connection.close()


@pytest.mark.parametrize(
    ("own", "given"),
    [
        ("INT", "INT UNSIGNED"),
        ("DECIMAL(10,2)", "DECIMAL(10,1)"),
        ("DATETIME(3)", "DATETIME(4)"),
        ("VARCHAR(9) CHARACTER SET latin1", "VARCHAR(9) CHARACTER SET latin2"),
        ("ENUM('a','b')", "ENUM('b','a')"),
        ("SET('ab','c')", "SET('a','bc')"),
    ],
)
def test_bytes_that_are_read_otherwise_are_a_warning(started: Server, own: str, given: str) -> None:
    connection = started.connect("definitions")
    _make(connection, "a", f"id INT PRIMARY KEY, x {own}, y INT")
    _make(connection, "b", f"id INT PRIMARY KEY, x {given}, y INT")
    _run(connection, "INSERT INTO a (id, y) VALUES (1, 5)")
    _take_definition(connection, started, "a", "b")
    assert _image(connection, "a") == ((1, None, 5),)
    warning = _run(connection, "SHOW WARNINGS")[0][2]
    assert "column x has another sign, number of decimals, character set" in warning
    assert warning in started.log()
    _run(connection, "ALTER TABLE a FORCE")
    assert _image(connection, "a") == ((1, None, 5),)
    assert not _run(connection, "SHOW WARNINGS")
    connection.close()


@pytest.mark.parametrize(
    ("columns", "words"),
    [
        (COLUMNS.replace("v VARCHAR(10)", "v VARCHAR(5)"), "column v is at most"),
        (COLUMNS.replace("w INT", "w BIGINT"), "column w is 4 bytes"),
        (COLUMNS.replace("w INT", "w FLOAT"), "column w is 4 bytes"),
        (COLUMNS.replace("w INT", "w INT NOT NULL"), "column w is 4 bytes"),
        (COLUMNS + ", z INT", "4 columns, not 5"),
        (COLUMNS + ", KEY (w)", "2 indexes, not 3"),
        (COLUMNS.replace("KEY (v)", "UNIQUE (v)"), "index v is (v "),
        (COLUMNS.replace("KEY (v)", "KEY (v DESC)"), "index v is (v "),
        (COLUMNS.replace("KEY (v)", "KEY (v(4))"), "index v is (v "),
        (COLUMNS.replace("v VARCHAR(10)", "v VARCHAR(10) COLLATE utf8mb4_bin"), "index v is (v "),
    ],
)
def test_another_definition_is_refused_with_its_remedy(
    started: Server, tmp_path: Path, columns: str, words: str
) -> None:
    connection = started.connect("definitions")
    _make(connection, "a")
    _make(connection, "b", columns)
    _fill(connection, "a")
    rows = _image(connection, "a")
    _take_definition(connection, started, "a", "b")
    for statement in ("SELECT * FROM a", "INSERT INTO a (w) VALUES (1)", "ALTER TABLE a FORCE"):
        number, text = _error(connection, statement)
        assert number == 1033, (number, text)
        for part in ("table definitions/a", words, "firn definition"):
            assert part in text, text
    connection.close()
    started.stop()
    stored = tmp_path / "a.frm"
    command = [str(TOOL), "definition", str(started.data), "definitions.a", str(stored)]
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    shutil.copyfile(stored, started.data / "definitions" / "a.frm")
    started.start()
    connection = started.connect("definitions")
    assert _image(connection, "a") == rows
    assert not _run(connection, "SHOW WARNINGS")
    _run(connection, "INSERT INTO a (v) VALUES ('after')")
    assert _run(connection, "CHECK TABLE a EXTENDED")[0][3] == "OK"
    connection.close()
