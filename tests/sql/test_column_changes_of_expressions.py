"""Changes of columns that give expressions of other columns new values copy the table."""

from __future__ import annotations

import pymysql
import pytest
from server import ENGINE, IS_FIRN, Server

pytestmark = pytest.mark.skipif(not IS_FIRN, reason="about FIRN itself")

CONSTRAINT_FAILED = 4025
INDEX_IS_NEEDED = 1553
NOT_IN_PLACE = (1845, 1846)

# Definition, statement, and a column of which the index, the rows and the partitions must agree.
CHANGES = {
    "virtual_over_virtual": (
        "(a INT, v1 INT AS (a + 1) VIRTUAL, v2 INT AS (v1 * 2) VIRTUAL, KEY k (v2))",
        "MODIFY v1 INT AS (a + 100) VIRTUAL",
        "v2",
    ),
    "virtual_replaced": (
        "(a INT, v1 INT AS (a + 1) VIRTUAL, v2 INT AS (v1 * 2) VIRTUAL, KEY k (v2))",
        "DROP v1, ADD v1 INT AS (a + 100) VIRTUAL AFTER a",
        "v2",
    ),
    "base_replaced": (
        "(a INT, id INT, v INT AS (a + 1) VIRTUAL, KEY k (v))",
        "DROP a, ADD a INT DEFAULT 50",
        "v",
    ),
    "base_replaced_by_another": (
        "(a INT, c INT DEFAULT 70, v INT AS (a + 1) VIRTUAL, KEY k (v))",
        "DROP a, CHANGE c a INT",
        "v",
    ),
    "stored": (
        "(a INT, id INT, v INT AS (a * 2) STORED, KEY k (v))",
        "DROP a, ADD a INT DEFAULT 50",
        "v",
    ),
    "partition_function": (
        "(a INT, id INT, KEY k (a)) PARTITION BY HASH (a) PARTITIONS 4",
        "DROP a, ADD a INT DEFAULT 7",
        "a",
    ),
    "partitions_over_virtual": (
        "(a INT, v INT AS (a + 1) VIRTUAL, KEY k (v)) PARTITION BY HASH (v) PARTITIONS 4",
        "MODIFY v INT AS (a + 6) VIRTUAL",
        "v",
    ),
}


@pytest.mark.parametrize("name", CHANGES)
def test_index_rows_and_partitions_agree(server: Server, database: str, name: str) -> None:
    definition, change, column = CHANGES[name]
    table = f"{database}.t"
    body, _, partitions = definition.partition(" PARTITION")
    tail = f" PARTITION{partitions}" if partitions else ""
    server.query(f"CREATE TABLE {table} {body} ENGINE={ENGINE}{tail}")
    server.query(f"INSERT INTO {table} (a) VALUES (1), (2), (3), (4), (5), (6)")
    server.query(f"ALTER TABLE {table} {change}")
    rows = server.query(f"SELECT {column} FROM {table} IGNORE INDEX (k) ORDER BY 1")
    assert len(rows) == 6
    index = f"{table} FORCE INDEX (k)" if "KEY k" in _definition(server, table) else table
    entries = server.query(f"SELECT {column} FROM {index} WHERE {column} > -1 ORDER BY 1")
    assert entries == rows
    for (value,) in set(rows):
        found = server.query(f"SELECT COUNT(*) FROM {table} WHERE {column} = {value}")
        assert found == ((rows.count((value,)),),)
    (status,) = [row[3] for row in server.query(f"CHECK TABLE {table} EXTENDED")]
    assert status == "OK"


def _definition(server: Server, table: str) -> str:
    return str(server.query(f"SHOW CREATE TABLE {table}")[0][1]).replace("`", "")


@pytest.mark.parametrize("column", ["c INT NOT NULL DEFAULT 0 CHECK (c > 0)", "j JSON NOT NULL"])
def test_a_default_that_breaks_the_columns_constraint_fails(
    server: Server, database: str, column: str
) -> None:
    table = f"{database}.t"
    server.query(f"CREATE TABLE {table} (id INT PRIMARY KEY) ENGINE={ENGINE}")
    server.query(f"ALTER TABLE {table} ADD {column}")
    server.query(f"ALTER TABLE {table} DROP {column.split()[0]}")
    server.query(f"INSERT INTO {table} VALUES (1)")
    with pytest.raises(pymysql.err.OperationalError) as failed:
        server.query(f"ALTER TABLE {table} ADD {column}")
    assert failed.value.args[0] == CONSTRAINT_FAILED
    with pytest.raises(pymysql.err.MySQLError) as refused:
        server.query(f"ALTER TABLE {table} ADD {column}, ALGORITHM=INSTANT")
    assert refused.value.args[0] in NOT_IN_PLACE


@pytest.mark.parametrize("column", ["c INT NOT NULL DEFAULT 0 CHECK (c > 0)", "j JSON NOT NULL"])
def test_ignore_keeps_rows_whose_default_breaks_the_constraint(
    server: Server, database: str, column: str
) -> None:
    table = f"{database}.t"
    server.query(f"CREATE TABLE {table} (id INT PRIMARY KEY) ENGINE={ENGINE}")
    server.query(f"INSERT INTO {table} VALUES (1), (2)")
    server.query(f"ALTER IGNORE TABLE {table} ADD {column}")
    assert server.query(f"SELECT id FROM {table} ORDER BY id") == ((1,), (2,))


@pytest.mark.parametrize("other", ["DROP COLUMN c2", "ADD COLUMN c3 INT", "MODIFY c2 INT FIRST"])
def test_index_of_a_foreign_key_stays(server: Server, database: str, other: str) -> None:
    server.query(f"CREATE TABLE {database}.p (id INT PRIMARY KEY) ENGINE={ENGINE}")
    server.query(
        f"CREATE TABLE {database}.c (id INT PRIMARY KEY, c1 INT, c2 INT, KEY k (c1), "
        f"FOREIGN KEY (c1) REFERENCES {database}.p (id)) ENGINE={ENGINE}"
    )
    with pytest.raises(pymysql.err.MySQLError) as refused:
        server.query(f"ALTER TABLE {database}.c DROP KEY k, {other}")
    assert refused.value.args[0] == INDEX_IS_NEEDED
    server.query(f"ALTER TABLE {database}.c {other}")
