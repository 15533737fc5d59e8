"""Indexes over virtual columns, where the server leaves the columns uncomputed.

Rows do not store virtual columns. The server merges the rows of partitions by the columns of the
index, in records in which it computes nothing, and it writes rows whose virtual columns it has not
computed: on a replica that has more columns, and after a trigger of a multi-table UPDATE.
"""

from __future__ import annotations

import itertools

import pytest
from replication import Pair, execute
from server import ENGINE, IS_FIRN, Server

TABLES = {
    "prefix_before_virtual": "c BINARY(6), v INT AS (id + 1) VIRTUAL, KEY k (c(3), v)",
    "virtual": "c VARCHAR(20), v INT AS (id * 7 % 17) VIRTUAL, KEY k (v)",
    "prefix_of_virtual_text": "c VARCHAR(20), v TEXT AS (concat(c, '!')) VIRTUAL, KEY k (v(5))",
    "prefix_of_virtual_varchar": "c VARCHAR(20), v VARCHAR(30) AS (concat(c, id % 5)) VIRTUAL, KEY k (v(3))",
    "virtual_over_virtual": "c VARCHAR(20), u INT AS (id % 5) VIRTUAL, v INT AS (u + id) VIRTUAL, KEY k (u, v)",
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
