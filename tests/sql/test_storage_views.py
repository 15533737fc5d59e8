"""Information on tables and statements: views, SHOW TABLE STATUS, read statistics."""

from __future__ import annotations

import json
import re
import time
from typing import Any

import pymysql
import pytest
from server import ENGINE, IS_FIRN, Server

ROWS = 20_000
VIEWS = (
    "firn_indexes",
    "firn_files",
    "firn_compactions",
    "firn_io",
    "firn_pool",
    "firn_object_store",
    "firn_stalls",
    "firn_memory",
)


def _rows(session: pymysql.Connection[Any], sql: str) -> list[tuple[Any, ...]]:
    with session.cursor() as cursor:
        cursor.execute(sql)
        return list(cursor.fetchall())


def _fill(server: Server, database: str, name: str = "t", engine: str = ENGINE) -> None:
    server.query(
        f"CREATE TABLE {database}.{name} (id INT AUTO_INCREMENT PRIMARY KEY, v INT, "
        f"pad VARCHAR(200), UNIQUE KEY v (v)) ENGINE={engine}"
    )
    server.query(
        f"INSERT INTO {database}.{name} (v, pad) SELECT seq, REPEAT(MD5(seq), 4) "
        f"FROM seq_1_to_{ROWS}"
    )


@pytest.mark.skipif(not IS_FIRN, reason="about FIRN itself")
@pytest.mark.parametrize("view", VIEWS)
def test_a_view_needs_the_process_privilege(server: Server, database: str, view: str) -> None:
    server.query("CREATE OR REPLACE USER plain@localhost IDENTIFIED BY ''")
    server.query(f"GRANT ALL ON {database}.* TO plain@localhost")
    session = server.connect(database, user="plain")
    with pytest.raises(pymysql.err.MySQLError) as caught:
        _rows(session, f"SELECT * FROM information_schema.{view}")
    assert caught.value.args[0] == 1227
    session.close()
    server.query("DROP USER plain@localhost")


@pytest.mark.skipif(not IS_FIRN, reason="about FIRN itself")
def test_indexes_and_files(own_server: Any) -> None:
    server: Server = own_server()
    server.query("CREATE DATABASE d")
    _fill(server, "d")
    indexes = "SELECT * FROM information_schema.firn_indexes WHERE table_schema = 'd'"
    before = {row[2]: row for row in server.query(indexes)}
    assert set(before) == {"PRIMARY", "v"}
    assert [row[4:7] for row in before.values()] == [("YES", "YES", 1), ("YES", "NO", 1)]
    assert before["PRIMARY"][7] == ROWS
    server.query("OPTIMIZE TABLE d.t")
    after = {row[2]: row for row in server.query(indexes)}
    for name in before:
        assert after[name][7:10] == (ROWS, 0, 0)
        assert 0 < after[name][11] < after[name][10]
    files = server.query(
        "SELECT SUM(entries), SUM(stored_bytes), MIN(min_seqno), MAX(smallest_key) FROM "
        "information_schema.firn_files"
    )[0]
    stored = sum(row[11] for row in after.values())
    assert files[0] >= 2 * ROWS
    assert files[1] >= stored
    assert "d/t" in str(server.query("SELECT smallest_key FROM information_schema.firn_files"))

    def on_disk() -> set[str]:
        return {path.name for path in (server.data / "#firn").rglob("*") if path.is_file()}

    # A compaction may delete files after the query, or make some before it.
    found = on_disk()
    names = server.query("SELECT file_name FROM information_schema.firn_files")
    found |= on_disk()
    assert {row[0] for row in names} <= found, found


@pytest.mark.skipif(not IS_FIRN, reason="about FIRN itself")
def test_jobs_stalls_and_memory(own_server: Any) -> None:
    server: Server = own_server()
    server.query("CREATE DATABASE d")
    _fill(server, "d")
    server.query("UPDATE d.t SET v = v + 100000")
    server.query("OPTIMIZE TABLE d.t")

    def compacted() -> int:
        status = "SHOW GLOBAL STATUS LIKE 'Firn_compacted_bytes_written'"
        return int(server.query(status)[0][1])

    # The server may compact between two queries. The numbers agree when it does not.
    deadline = time.monotonic() + 60
    while True:
        total = compacted()
        jobs = server.query(
            "SELECT number, kind, from_level, to_level, files_written, bytes_written, "
            "entries_written, started <= NOW(), error FROM information_schema.firn_compactions"
        )
        listed = sum(row[5] for row in jobs if row[1] == "compact")
        if listed == total == compacted():
            break
        assert time.monotonic() < deadline, (listed, total)
    assert [row[0] for row in jobs] == list(range(1, len(jobs) + 1))
    assert {"flush", "compact"} <= {row[1] for row in jobs}
    for _, kind, from_level, to_level, files, written, entries, begun, error in jobs:
        assert (from_level is None) == (kind == "flush")
        assert 0 <= to_level <= 7
        assert begun == 1
        assert error is None
        if kind in ("flush", "compact"):
            assert (files > 0) == (written > 0) == (entries > 0)
    stalls = {
        row[0]: row[1:] for row in server.query("SELECT * FROM information_schema.firn_stalls")
    }
    assert set(stalls) == {"memtables", "l0", "debt", "space", "memory"}
    memory = {
        row[0]: row[1:] for row in server.query("SELECT * FROM information_schema.firn_memory")
    }
    others = ("total", "of these", "allocator: ")
    parts = [use for name, (use, _) in memory.items() if not name.startswith(others)]
    assert memory["block cache"][1] > 0
    assert memory["memtables"][0] > 0
    # The numbers are of one moment.
    assert sum(parts) == memory["total"][0]


def test_table_status_is_like_innodb(server: Server, database: str) -> None:
    told = {}
    for name, engine in (("ours", ENGINE), ("innodb", "InnoDB")):
        _fill(server, database, name, engine)
        # The checksum of the rows does not depend on the engine.
        checksum = server.query(f"CHECKSUM TABLE {database}.{name}")[0][1]
        if engine == "InnoDB":
            server.query(f"ANALYZE TABLE {database}.{name}")
        row = server.query(
            "SELECT table_rows, row_format, auto_increment, checksum, create_options, "
            "table_collation, index_length > 0, data_length > 0, create_time IS NOT NULL, "
            "update_time IS NOT NULL, max_data_length, data_free, avg_row_length "
            "FROM information_schema.tables WHERE table_schema = %s AND table_name = %s",
            (database, name),
        )[0]
        told[name] = (checksum, *row)
    ours, innodb = told["ours"], told["innodb"]
    assert ours[0] == innodb[0]
    assert abs(ours[1] - innodb[1]) < ROWS / 10
    assert ours[2] == innodb[2] == "Dynamic"
    # AUTO_INCREMENT is at least the next value; engines reserve in different steps.
    assert ours[3] > ROWS
    assert ours[4:11] == innodb[4:11]
    assert 50 < ours[13] < 400


def test_times_of_a_table(server: Server, database: str) -> None:
    server.query(f"CREATE TABLE {database}.t (id INT PRIMARY KEY) ENGINE={ENGINE}")
    times = "SELECT create_time, update_time FROM information_schema.tables WHERE table_schema = %s"
    created, updated = server.query(times, (database,))[0]
    now = server.query("SELECT NOW()")[0][0]
    assert abs((now - created).total_seconds()) < 60
    assert updated is None
    server.query(f"INSERT INTO {database}.t VALUES (1)")
    assert server.query(times, (database,))[0][1] is not None
    assert server.query(times, (database,))[0][0] == created


@pytest.mark.skipif(not IS_FIRN, reason="about FIRN itself")
def test_data_free_is_what_optimize_frees(own_server: Any) -> None:
    server: Server = own_server()
    server.query("CREATE DATABASE d")
    _fill(server, "d")
    server.query("OPTIMIZE TABLE d.t")
    status = (
        "SELECT data_length + index_length, data_free FROM information_schema.tables "
        "WHERE table_schema = 'd'"
    )
    whole, free = server.query(status)[0]
    assert free == 0
    # An open snapshot needs the old versions, so nothing drops them.
    reader = server.connect("d")
    _rows(reader, "START TRANSACTION WITH CONSISTENT SNAPSHOT")
    server.query("UPDATE d.t SET pad = REPEAT(MD5(-id), 4)")
    server.query("OPTIMIZE TABLE d.t")
    full, free = server.query(status)[0]
    assert free > whole / 10
    _rows(reader, "COMMIT")
    server.query("OPTIMIZE TABLE d.t")
    after, left = server.query(status)[0]
    assert left == 0
    assert after < full
    reader.close()


@pytest.mark.skipif(not IS_FIRN, reason="InnoDB counts other things")
def test_analyze_shows_what_a_statement_reads(own_server: Any) -> None:
    server: Server = own_server("--firn-row-cache-size=0")
    server.query("CREATE DATABASE d")
    _fill(server, "d")
    server.query("OPTIMIZE TABLE d.t")
    server.restart()
    session = server.connect("d")

    def engine(sql: str) -> dict[str, float]:
        plan = json.loads(_rows(session, f"ANALYZE FORMAT=JSON {sql}")[0][0])
        found = json.dumps(plan)
        assert "r_engine_stats" in found, found
        table = plan["query_block"]["nested_loop"][0]["table"]
        stats: dict[str, float] = table["r_engine_stats"]
        return stats

    first = engine("SELECT SUM(LENGTH(pad)) FROM t")
    assert first["pages_accessed"] > 10
    assert first["pages_read_count"] > 0
    assert first["pages_read_time_ms"] > 0
    second = engine("SELECT SUM(LENGTH(pad)) FROM t")
    assert second["pages_accessed"] >= first["pages_accessed"] // 2
    assert "pages_read_count" not in second
    point = engine("SELECT pad FROM t FORCE INDEX (PRIMARY) WHERE id BETWEEN 7 AND 8")
    assert 0 < point["pages_accessed"] < 10
    _rows(session, "START TRANSACTION WITH CONSISTENT SNAPSHOT")
    server.query("UPDATE d.t SET pad = 'x' WHERE id < 500")
    assert engine("SELECT SUM(LENGTH(pad)) FROM t")["old_rows_read"] >= 499
    session.close()


def test_a_sort_takes_memory_by_the_rows_that_it_expects(server: Server) -> None:
    session = server.connect("mysql")
    try:
        _rows(session, "CREATE DATABASE sorted")
        _rows(session, "USE sorted")
        _rows(session, f"CREATE TABLE t (id INT PRIMARY KEY, c CHAR(120)) ENGINE={ENGINE}")
        _rows(session, "INSERT INTO t SELECT seq, MD5(seq) FROM seq_1_to_200")

        def buffer_kib() -> float:
            plan = _rows(session, "ANALYZE FORMAT=JSON SELECT * FROM t ORDER BY c")[0][0]
            size = re.search(r'"r_buffer_size": "(\d+)([KM])', plan)
            assert size is not None, plan
            return float(size[1]) * (1024 if size[2] == "M" else 1)

        whole = server.query("SELECT @@sort_buffer_size")[0][0] / 1024
        assert buffer_kib() < whole / 4
        # The estimate does not know these rows; the sort has all of them all the same.
        _rows(session, "BEGIN")
        _rows(session, "INSERT INTO t SELECT seq, MD5(seq) FROM seq_201_to_40000")
        found = [row[0] for row in _rows(session, "SELECT c FROM t ORDER BY c")]
        assert len(found) == 40_000
        assert found == sorted(found)
        _rows(session, "ROLLBACK")
    finally:
        _rows(session, "DROP DATABASE sorted")
        session.close()
