"""Cascades into tables whose indexes contain virtual columns, beside InnoDB.

A row of such a table has no stored value for the column. A cascade deletes or changes the row
without a statement of the server, so the engine must have the column computed.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from foreign_key_pair import KeyPair
from replication import Pair
from server import ENGINE, Server
from test_foreign_keys import play

PARENT = """
    CREATE TABLE p (id INT PRIMARY KEY, b INT, UNIQUE (b))
    INSERT INTO p VALUES (1, 1), (2, 2), (3, 3)
"""

# Each script with the errors that must appear in it.
# ruff: noqa: E501
SCENARIOS = {
    "value_out_of_range": (
        """
        CREATE TABLE c (id INT PRIMARY KEY, p INT, v TINYINT AS (p + 100) VIRTUAL, KEY (v), FOREIGN KEY (p) REFERENCES p (id) ON DELETE SET NULL ON UPDATE CASCADE)
        INSERT INTO c (id, p) VALUES (1, 1), (2, 2)
        UPDATE p SET id = 20 WHERE id = 1
        SELECT id, v FROM c FORCE INDEX (v) WHERE v > 0
        UPDATE p SET id = 90 WHERE id = 2
        SELECT * FROM c
        SET sql_mode=''
        UPDATE p SET id = 90 WHERE id = 2
        SELECT id, v FROM c FORCE INDEX (v) WHERE v > 0
        SET sql_mode=DEFAULT
        UPDATE p SET id = 5 WHERE id = 90
        DELETE FROM p WHERE id = 90
        SELECT * FROM c
        UPDATE IGNORE p SET id = 99 WHERE id = 20
        DELETE FROM p
        SELECT id, v FROM c FORCE INDEX (v)
        CHECK TABLE c EXTENDED
        """,
        {1264},
    ),
    "expression_fails": (
        """
        CREATE TABLE c (id INT PRIMARY KEY, p INT, v INT AS (10 / p) VIRTUAL, KEY (v), FOREIGN KEY (p) REFERENCES p (id) ON UPDATE CASCADE)
        INSERT INTO c (id, p) VALUES (1, 1), (2, 2)
        SET sql_mode='STRICT_ALL_TABLES,ERROR_FOR_DIVISION_BY_ZERO'
        UPDATE p SET id = 0 WHERE id = 1
        SELECT v FROM c FORCE INDEX (v) ORDER BY v
        CHECK TABLE c EXTENDED
        """,
        {1365},
    ),
    "unique": (
        """
        CREATE TABLE c (id INT PRIMARY KEY, p INT, v INT AS (ABS(p)) VIRTUAL UNIQUE, FOREIGN KEY (p) REFERENCES p (b) ON UPDATE CASCADE)
        INSERT INTO c (id, p) VALUES (1, 1), (2, 2)
        UPDATE p SET b = -2 WHERE b = 1
        UPDATE p SET b = -5 WHERE b = 1
        INSERT INTO c (id, p) VALUES (3, 3)
        INSERT INTO c (id, p) VALUES (4, 3)
        SELECT id, v FROM c FORCE INDEX (v) WHERE v = 5
        CHECK TABLE c EXTENDED
        """,
        {1761, 1062},
    ),
    "several_columns_and_text": (
        """
        CREATE TABLE c (id INT PRIMARY KEY, p INT, q INT, v VARCHAR(20) AS (CONCAT(p, '/', q)) VIRTUAL, w TEXT AS (CONCAT(p, '-', q)) VIRTUAL, x INT AS (LENGTH(w)) VIRTUAL, n TEXT AS (CONCAT('n', p)) VIRTUAL, KEY (v), KEY (w(10)), KEY (p, v), KEY (x), FOREIGN KEY (p) REFERENCES p (id) ON UPDATE CASCADE ON DELETE SET NULL, FOREIGN KEY (q) REFERENCES p (b) ON UPDATE CASCADE ON DELETE CASCADE)
        INSERT INTO c (id, p, q) VALUES (1, 1, 1), (2, 2, 3), (3, 1, 2)
        UPDATE p SET id = id + 10, b = b + 10
        SELECT * FROM c
        SELECT v FROM c FORCE INDEX (v) ORDER BY v
        SELECT id FROM c FORCE INDEX (w) ORDER BY w
        BEGIN
        DELETE FROM p WHERE id = 11
        SELECT * FROM c
        SELECT id FROM c FORCE INDEX (v) WHERE v LIKE '1%'
        SELECT id FROM c FORCE INDEX (x) WHERE x > 0
        ROLLBACK
        SELECT id FROM c FORCE INDEX (x) WHERE x > 0
        DELETE FROM p
        SELECT * FROM c
        CHECK TABLE c EXTENDED
        """,
        set(),
    ),
    "large_text_and_hash": (
        """
        CREATE TABLE c (id INT PRIMARY KEY, p INT, t TEXT, u TEXT AS (CONCAT(t, p)) VIRTUAL, UNIQUE (u), FOREIGN KEY (p) REFERENCES p (id) ON UPDATE CASCADE ON DELETE CASCADE)
        INSERT INTO c (id, p, t) VALUES (1, 1, REPEAT('x', 5000)), (2, 2, 'b')
        UPDATE p SET id = id + 10 ORDER BY id DESC
        SELECT id, p, LENGTH(t), LENGTH(u), RIGHT(u, 3) FROM c
        INSERT INTO c (id, p, t) VALUES (3, 12, 'b')
        DELETE FROM p WHERE id = 11
        SELECT id, p FROM c
        CHECK TABLE c EXTENDED
        """,
        {1062},
    ),
    "refers_to_itself": (
        """
        CREATE TABLE s (id INT PRIMARY KEY, p INT, v INT AS (p * 10 + id) VIRTUAL, KEY (v), FOREIGN KEY (p) REFERENCES s (id) ON DELETE CASCADE)
        INSERT INTO s (id, p) VALUES (1, NULL), (2, 1), (3, 1), (4, 2), (5, 5)
        DELETE FROM s WHERE id = 1
        SELECT v FROM s FORCE INDEX (v)
        CHECK TABLE s EXTENDED
        DROP TABLE s
        CREATE TABLE s (id INT PRIMARY KEY, p INT, v INT AS (p * 10 + id) VIRTUAL, KEY (v), FOREIGN KEY (p) REFERENCES s (id) ON DELETE SET NULL)
        INSERT INTO s (id, p) VALUES (1, NULL), (2, 1), (3, 1), (4, 2), (5, 5)
        LOCK TABLES s WRITE
        DELETE FROM s WHERE id = 1
        UNLOCK TABLES
        SELECT id, v FROM s FORCE INDEX (v)
        CHECK TABLE s EXTENDED
        """,
        set(),
    ),
    "two_levels": (
        """
        CREATE TABLE c (id INT PRIMARY KEY, p INT, v INT AS (p + id) VIRTUAL, KEY (v), KEY (p), FOREIGN KEY (p) REFERENCES p (id) ON DELETE CASCADE ON UPDATE CASCADE)
        CREATE TABLE g (id INT PRIMARY KEY, p INT, v INT AS (p - id) VIRTUAL, KEY (v), FOREIGN KEY (p) REFERENCES c (p) ON DELETE SET NULL ON UPDATE CASCADE)
        INSERT INTO c (id, p) VALUES (1, 1), (2, 2)
        INSERT INTO g (id, p) VALUES (1, 1), (2, 2), (3, 1)
        UPDATE p SET id = 7 WHERE id = 1
        SELECT id, v FROM g FORCE INDEX (v)
        DELETE FROM p WHERE id = 7
        SELECT id, v FROM g FORCE INDEX (v)
        SELECT * FROM c
        CHECK TABLE c, g EXTENDED
        """,
        set(),
    ),
    "referencing_column_is_virtual": (
        """
        CREATE TABLE c (id INT PRIMARY KEY, p INT, v INT AS (p + 1) VIRTUAL, FOREIGN KEY (v) REFERENCES p (id) ON DELETE CASCADE)
        INSERT INTO c (id, p) VALUES (1, 1), (2, 2)
        INSERT INTO c (id, p) VALUES (3, 7)
        DELETE FROM p WHERE id = 3
        SELECT * FROM c
        CREATE TABLE d (id INT PRIMARY KEY, p INT, v INT AS (p + 1) VIRTUAL, FOREIGN KEY (v) REFERENCES p (id) ON UPDATE CASCADE)
        CREATE TABLE d (id INT PRIMARY KEY, p INT, v INT AS (p + 1) VIRTUAL, FOREIGN KEY (v) REFERENCES p (id) ON DELETE SET NULL)
        CHECK TABLE c EXTENDED
        """,
        {1452, 1905},
    ),
    "stored_column": (
        """
        CREATE TABLE c (id INT PRIMARY KEY, p INT, w INT AS (p + 1) VIRTUAL, v INT AS (w + 1) STORED, KEY (w), KEY (v), FOREIGN KEY (p) REFERENCES p (id) ON DELETE CASCADE)
        INSERT INTO c (id, p) VALUES (1, 1), (2, 2)
        DELETE FROM p WHERE id = 1
        SELECT * FROM c
        CREATE TABLE d (id INT PRIMARY KEY, p INT, w INT AS (p + 1) VIRTUAL, v INT AS (w + 1) STORED, FOREIGN KEY (p) REFERENCES p (id) ON UPDATE CASCADE)
        CHECK TABLE c EXTENDED
        """,
        {1901},
    ),
}


@pytest.fixture
def pair(server: Server) -> Iterator[KeyPair]:
    """Two fresh databases."""
    both = KeyPair(server, "fkv")
    yield both
    if server.running():
        both.close()


@pytest.mark.parametrize("name", SCENARIOS)
def test_cascade_changes_indexes_over_virtual_columns(pair: KeyPair, name: str) -> None:
    script, errors = SCENARIOS[name]
    found = set(play(pair, PARENT + script)) - {0}
    assert found == errors


@pytest.mark.parametrize("algorithm", ["DEFAULT", "COPY"])
def test_index_is_added_later(pair: KeyPair, algorithm: str) -> None:
    play(
        pair,
        PARENT
        + """
        CREATE TABLE c (id INT PRIMARY KEY, p INT, v INT AS (p + 1) VIRTUAL, FOREIGN KEY (p) REFERENCES p (id) ON DELETE SET NULL ON UPDATE CASCADE)
        INSERT INTO c (id, p) VALUES (1, 1), (2, 2)
        """,
    )
    # FIRN copies the rows for such an index, so the numbers of affected rows differ.
    for result in pair.results(f"ALTER TABLE c ADD KEY (v), ALGORITHM={algorithm}"):
        assert result.error == 0
    play(
        pair,
        """
        UPDATE p SET id = 9 WHERE id = 1
        DELETE FROM p WHERE id = 2
        SELECT id, v FROM c FORCE INDEX (v)
        CHECK TABLE c EXTENDED
        """,
    )


def test_rows_that_refer_to_a_virtual_column_follow_a_cascade(
    server: Server, database: str
) -> None:
    """InnoDB leaves them behind: it checks no foreign key that refers to a virtual column."""
    session = server.connect(database)
    with session.cursor() as cursor:
        for sql in (
            f"CREATE TABLE p (id INT PRIMARY KEY) ENGINE={ENGINE}",
            "CREATE TABLE c (id INT PRIMARY KEY, p INT, v INT AS (p + 1) VIRTUAL, KEY (v), "
            f"FOREIGN KEY (p) REFERENCES p (id) ON DELETE SET NULL ON UPDATE CASCADE) "
            f"ENGINE={ENGINE}",
            "CREATE TABLE g (id INT PRIMARY KEY, v INT, FOREIGN KEY (v) REFERENCES c (v) "
            f"ON UPDATE CASCADE) ENGINE={ENGINE}",
            "INSERT INTO p VALUES (1), (2)",
            "INSERT INTO c (id, p) VALUES (1, 1), (2, 2)",
            "INSERT INTO g VALUES (1, 2), (2, 3)",
            "UPDATE p SET id = 7 WHERE id = 1",
            "DELETE FROM p WHERE id = 2",
        ):
            cursor.execute(sql)
        expected = ((1, 8), (2, None)) if ENGINE == "FIRN" else ((1, 2), (2, 3))
        cursor.execute("SELECT id, v FROM g ORDER BY id")
        assert cursor.fetchall() == expected
    session.close()


@pytest.mark.parametrize("binlog_format", ["ROW", "STATEMENT"])
def test_replica_computes_the_columns(own_server: Any, binlog_format: str) -> None:
    """A replica that applies rows has no statement that would open the referencing table."""
    both = Pair(own_server, [f"--binlog-format={binlog_format}"])
    session = both.primary.connect()
    with session.cursor() as cursor:
        for sql in (
            "CREATE DATABASE d",
            "CREATE TABLE d.p (id INT PRIMARY KEY)",
            "CREATE TABLE d.c (id INT PRIMARY KEY, p INT, v INT AS (p + 1) VIRTUAL, KEY (v), "
            "FOREIGN KEY (p) REFERENCES d.p (id) ON DELETE SET NULL ON UPDATE CASCADE)",
            "INSERT INTO d.p VALUES (1), (2), (3)",
            "INSERT INTO d.c (id, p) VALUES (1, 1), (2, 2), (3, 3)",
            "UPDATE d.p SET id = 7 WHERE id = 1",
            "DELETE FROM d.p WHERE id = 2",
        ):
            cursor.execute(sql)
    session.commit()
    session.close()
    both.catch_up()
    both.expect_equal("d")
    by_index = "SELECT id, v FROM d.c FORCE INDEX (v) ORDER BY v"
    assert both.replica.query(by_index) == ((2, None), (3, 4), (1, 8))
    assert both.replica.query("CHECK TABLE d.c EXTENDED")[-1][-1] == "OK"
