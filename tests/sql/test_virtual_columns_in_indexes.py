"""Indexes over virtual columns, where the server leaves the columns uncomputed.

Rows do not store virtual columns. The server merges the rows of partitions by the columns of the
index, in records in which it computes nothing, and it writes rows whose virtual columns it has not
computed: on a replica that has more columns, and after a trigger of a multi-table UPDATE.
"""

from __future__ import annotations

import itertools
from typing import Any

import pymysql
import pytest
from replication import Pair, execute
from server import ENGINE, IS_FIRN, Server

TABLES = {
    "prefix_before_virtual": "c BINARY(6), v INT AS (id + 1) VIRTUAL, KEY k (c(3), v)",
    "virtual": "c VARCHAR(20), v INT AS (id * 7 % 17) VIRTUAL, KEY k (v)",
    "prefix_of_virtual_text": "c VARCHAR(20), v TEXT AS (concat(c, '!')) VIRTUAL, KEY k (v(5))",
    "prefix_of_virtual_varchar": "c VARCHAR(20), v VARCHAR(30) AS (concat(c, id % 5)) VIRTUAL, "
    "KEY k (v(3))",
    "virtual_over_virtual": "c VARCHAR(20), u INT AS (id % 5) VIRTUAL, v INT AS (u + id) VIRTUAL, "
    "KEY k (u, v)",
    "primary_key": "c VARCHAR(20), v INT AS (id % 5) VIRTUAL, KEY k (c(2), v), PRIMARY KEY (id)",
}
QUERIES = (
    "SELECT v FROM {t} {hint} ORDER BY v {limit}",
    "SELECT v FROM {t} {hint} ORDER BY v DESC {limit}",
    "SELECT v, COUNT(*), MIN(id), MAX(id) FROM {t} {hint} GROUP BY v ORDER BY v {limit}",
    "SELECT id, c, v FROM {t} {hint} WHERE v IS NULL ORDER BY id {limit}",
    "SELECT id, c, v FROM {t} {hint} WHERE v > '3' ORDER BY v, id {limit}",
    "SELECT MIN(v), MAX(v), COUNT(DISTINCT v) FROM {t} {hint}",
    "SELECT id, v FROM {t} {hint} WHERE c IN ('a', 'b', 'c') AND v >= 0 ORDER BY id {limit}",
    "SELECT DISTINCT v FROM {t} {hint} WHERE c >= 'b' ORDER BY v {limit}",
)
ROWS = 60


@pytest.mark.parametrize("name", TABLES)
def test_reads_of_partitions(server: Server, database: str, name: str) -> None:
    table = f"{database}.t"
    server.query(
        f"CREATE TABLE {table} (id INT NOT NULL, {TABLES[name]}) ENGINE={ENGINE} "
        "PARTITION BY HASH (id) PARTITIONS 3"
    )
    values = ", ".join(
        f"({n}, {'NULL' if n % 7 == 0 else repr(chr(97 + n % 9))})" for n in range(ROWS)
    )
    server.query(f"INSERT INTO {table} (id, c) VALUES {values}")
    for query, limit in itertools.product(QUERIES, ("", "LIMIT 7")):
        by_index, by_rows = (
            server.query(query.format(t=table, hint=hint, limit=limit))
            for hint in ("FORCE INDEX (k)", "IGNORE INDEX (k)")
        )
        assert by_index == by_rows, query
    assert len(server.query(f"SELECT v FROM {table}")) == ROWS
    plain = sorted(str(row) for row in server.query(f"SELECT v FROM {table}"))
    rows = sorted(str(row) for row in server.query(f"SELECT v FROM {table} IGNORE INDEX (k)"))
    assert plain == rows


@pytest.mark.parametrize(
    "body",
    [
        "c CHAR(8) NOT NULL, v INT AS (id % 7) VIRTUAL, PRIMARY KEY (c(2), id), KEY k (v)",
        "c TEXT NOT NULL, v INT AS (id % 7) VIRTUAL, PRIMARY KEY (c(2), id), KEY k (v)",
        "c CHAR(8) NOT NULL, v INT AS (id % 7) VIRTUAL, PRIMARY KEY (c(2), id), KEY k (v, c)",
        "c CHAR(8) NOT NULL, v INT AS (id % 7) STORED, PRIMARY KEY (c(2), id), KEY k (v)",
    ],
)
@pytest.mark.parametrize("lock", ["", "LOCK IN SHARE MODE", "FOR UPDATE"])
def test_key_reads_beside_a_primary_key_with_a_prefix(
    server: Server, database: str, body: str, lock: str
) -> None:
    table = f"{database}.t"
    server.query(f"CREATE TABLE {table} (id INT NOT NULL, {body}) ENGINE={ENGINE}")
    server.query(f"INSERT INTO {table} (id, c) VALUES (8, 'abcd'), (9, 'bcde'), (10, 'xyzu')")
    for hint in ("", "FORCE INDEX (k)", "IGNORE INDEX (k)"):
        select = f"SELECT {{}} FROM {table} {hint} {{}} {lock}"
        assert server.query(select.format("v", "ORDER BY v")) == ((1,), (2,), (3,))
        assert server.query(select.format("v", "WHERE v > 1 ORDER BY v DESC")) == ((3,), (2,))
        assert server.query(select.format("SUM(v), MIN(v), MAX(v)", "")) == ((6, 1, 3),)
        assert server.query(select.format("COUNT(*)", "WHERE v BETWEEN 1 AND 2")) == ((2,),)
    server.query(f"UPDATE {table} SET id = id + 1 WHERE v > 1")
    assert server.query(f"SELECT v FROM {table} ORDER BY v") == ((1,), (3,), (4,))


def test_handler_reads_partitions_in_the_order_of_a_prefix(
    connection: pymysql.Connection[Any], database: str
) -> None:
    with connection.cursor() as cursor:
        cursor.execute(
            f"CREATE TABLE {database}.t (id INT, c VARCHAR(20), v VARCHAR(30) AS (concat(c, '!')) "
            f"VIRTUAL, KEY k (v(5))) ENGINE={ENGINE} PARTITION BY HASH (id) PARTITIONS 3"
        )
        rows = [(n, f"{chr(97 + n * 7 % 26)}{n}") for n in range(60)]
        cursor.executemany(f"INSERT INTO {database}.t (id, c) VALUES (%s, %s)", rows)
        cursor.execute(f"HANDLER {database}.t OPEN")
        cursor.execute("HANDLER t READ k FIRST LIMIT 60")
        found = [row[1] for row in cursor.fetchall()]
        cursor.execute("HANDLER t CLOSE")
    assert found == sorted(found) == sorted(c for _, c in rows)


def test_sort_of_an_index_merge_over_partitions(server: Server, database: str) -> None:
    table = f"{database}.t"
    server.query(
        f"CREATE TABLE {table} (id INT NOT NULL, a INT, c VARCHAR(9), v INT AS (id % 7) VIRTUAL, "
        f"KEY k2 (a), KEY k3 (c(2), v)) ENGINE={ENGINE} PARTITION BY HASH (id) PARTITIONS 3"
    )
    values = ", ".join(f"({n}, {n % 11}, '{chr(97 + n % 5)}xyz')" for n in range(1, 51))
    server.query(f"INSERT INTO {table} (id, a, c) VALUES {values}")
    where = "FORCE INDEX (k2, k3) {} WHERE a = 3 OR (c = 'axyz' AND v = 1) ORDER BY id"
    found = server.query(f"SELECT id FROM {table} {where.format('')}")
    assert [row[0] for row in found] == [3, 14, 15, 25, 36, 47, 50]
    server.query(f"UPDATE {table} {where.format('SET a = 100')}")
    assert server.query(f"SELECT COUNT(*) FROM {table} WHERE a = 100") == ((7,),)


def test_triggers_repeat_no_warning(connection: pymysql.Connection[Any], database: str) -> None:
    with connection.cursor() as cursor:
        cursor.execute("SET sql_mode = ''")
        for engine in (ENGINE, "InnoDB"):
            table = f"{database}.w_{engine}"
            cursor.execute(
                f"CREATE TABLE {table} (id INT PRIMARY KEY, a INT, v TINYINT AS (a) VIRTUAL, "
                f"KEY k (v)) ENGINE={engine}"
            )
            cursor.execute(
                f"CREATE TRIGGER {table}_t AFTER INSERT ON {table} FOR EACH ROW SET @x = 1"
            )
        counts = []
        for engine in (ENGINE, "InnoDB"):
            warnings = []
            for statement in (
                f"INSERT INTO {database}.w_{engine} (id, a) VALUES (1, 1000)",
                f"UPDATE {database}.w_{engine} SET a = 2000",
                f"REPLACE INTO {database}.w_{engine} (id, a) VALUES (1, 3000)",
            ):
                cursor.execute(statement)
                cursor.execute("SHOW WARNINGS")
                warnings.append([row[1] for row in cursor.fetchall()])
            counts.append(warnings)
    assert counts[0] == counts[1]


def by_index_and_by_rows(server: Server, table: str) -> tuple[list, list]:
    by_index = server.query(f"SELECT v, id FROM {table} FORCE INDEX (k) WHERE v > -100 ORDER BY v")
    by_rows = server.query(f"SELECT v, id FROM {table} IGNORE INDEX (k) ORDER BY v")
    return list(by_index), list(by_rows)


@pytest.mark.skipif(not IS_FIRN, reason="the index of the other engine is wrong here")
def test_replica_has_another_indexed_virtual_column(own_server: Server) -> None:
    pair = Pair(own_server, ["--binlog-format=ROW"])
    pair.primary.query("CREATE DATABASE d")
    pair.primary.query(f"CREATE TABLE d.t (id INT PRIMARY KEY, a INT) ENGINE={ENGINE}")
    pair.primary.query("INSERT INTO d.t VALUES (1, 1), (2, 2), (3, 3), (4, 4)")
    pair.catch_up()
    execute(
        pair.replica,
        "SET sql_log_bin = 0",
        "ALTER TABLE d.t ADD v INT AS (a + 1) VIRTUAL, ADD KEY k (v)",
    )
    pair.primary.query("UPDATE d.t SET a = a + 10 WHERE id = 2")
    pair.primary.query("INSERT INTO d.t VALUES (9, 9)")
    pair.primary.query("DELETE FROM d.t WHERE id = 1")
    pair.primary.query("REPLACE INTO d.t VALUES (3, 30)")
    pair.catch_up()
    by_index, by_rows = by_index_and_by_rows(pair.replica, "d.t")
    assert by_index == by_rows == [(5, 4), (10, 9), (13, 2), (31, 3)]
    assert pair.replica.query("CHECK TABLE d.t EXTENDED")[0][3] == "OK"


@pytest.mark.skipif(not IS_FIRN, reason="the index of the other engine is wrong here")
def test_trigger_changes_the_base_in_a_multi_table_update(server: Server, database: str) -> None:
    t, other = f"{database}.t", f"{database}.o"
    server.query(
        f"CREATE TABLE {t} (id INT PRIMARY KEY, a INT, c INT, v INT AS (a) VIRTUAL, KEY k (v)) "
        f"ENGINE={ENGINE}"
    )
    server.query(f"CREATE TABLE {other} (id INT PRIMARY KEY) ENGINE={ENGINE}")
    server.query(f"INSERT INTO {other} VALUES (7), (13)")
    server.query(
        f"CREATE TRIGGER {database}.b BEFORE UPDATE ON {t} FOR EACH ROW SET NEW.a = NEW.a + 1"
    )
    server.query(f"INSERT INTO {t} (id, a) VALUES (7, 1), (13, 5)")
    server.query(f"UPDATE {other} o STRAIGHT_JOIN {t} t ON t.id = o.id SET t.c = 6")
    by_index, by_rows = by_index_and_by_rows(server, t)
    assert by_index == by_rows == [(2, 7), (6, 13)]
    server.query(f"DELETE FROM {t}")
    assert by_index_and_by_rows(server, t) == ([], [])
    assert server.query(f"CHECK TABLE {t} EXTENDED")[0][3] == "OK"
